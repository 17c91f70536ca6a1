"""The command line, one file per command: parse, call, render."""

from __future__ import annotations

import signal


def program() -> None:
    """The program ``adk-skills``. Ctrl-C while it is being loaded ends it, and shows nobody a traceback."""
    loading = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # nohup and others have it ignored
    if loading:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from adk_skills_agent.cli.main import main

    if loading:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
