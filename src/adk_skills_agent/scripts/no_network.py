"""A sentence for a model whose script failed because there is no network: without it, it tries again.

Whether there was a network is a fact of the policy and of the isolation report. The script's own text only decides
whether the sentence is of any use, so a script that lies gains a true sentence.
"""

from __future__ import annotations

import re
from typing import Final

from adk_skills_agent.sandbox.contract import ExecutionResult, SandboxPolicy

NO_NETWORK: Final = "Scripts have no network here. Do not retry; do it without the network, or tell the user."
_LAST_CHARS = 8_000
_SIGNS = re.compile(
    r"gaierror|Name or service not known|NameResolutionError|name resolution|resolve host|nodename nor servname"
    r"|Network is unreachable|ENETUNREACH|ENOTFOUND|EAI_AGAIN|Failed to establish a new connection"
    r"|urlopen error \[Errno (?:-\d|1|13|101|111)\]"
)
_REFUSED = re.compile(r"Permission denied|Operation not permitted|Errno 1\b|EACCES|EPERM")


def no_network_sentence(policy: SandboxPolicy, result: ExecutionResult, *streams: str) -> str:
    """:data:`NO_NETWORK` when the run had no network and what it printed speaks of that; else "".

    Args:
        policy: Of the run.
        result: Its isolation report says whether the policy held.
        streams: What it printed.
    """
    if policy.network.mode not in {"none", "loopback"} or result.isolation.enforced.get("network") == "none":
        return ""
    for stream in streams:
        text = stream[-_LAST_CHARS:]
        # The system call itself may be refused; then only the place in the program says that it was about a socket.
        if _SIGNS.search(text) or ("socket" in text and _REFUSED.search(text)):
            return NO_NETWORK
    return ""
