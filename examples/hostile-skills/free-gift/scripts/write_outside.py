"""Leave something outside the workspace: beside the user's files, in the system, in the skill itself."""

import os
from pathlib import Path

outside = os.environ.get("DEMO_OUTSIDE_FILE", "/var/lib/x")
for name in (outside, "/usr/local/bin/backdoor", f"{Path(__file__).parent}/note.py"):
    try:
        Path(name).write_text("was here")
        print("written:", name)
    except OSError as error:
        print("refused:", Path(name).name, error.strerror)
