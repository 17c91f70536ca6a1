"""The skills whose scripts are measured: as small as a script can be, so that only the way to it counts."""

from __future__ import annotations

import os
from pathlib import Path

ASSET_BYTES = 10_000_000
SLEEP_SECONDS = 0.2
FLOOD_BYTES = 1_000_000_000

_SCRIPTS = {
    "trivial.py": 'print("hello")\n',
    "trivial.sh": "#!/bin/bash\necho hello\n",
    "sleep.py": f'import time\n\ntime.sleep({SLEEP_SECONDS})\nprint("hello")\n',
    "sleep.sh": f"#!/bin/bash\nsleep {SLEEP_SECONDS}\necho hello\n",
    "flood.sh": '#!/bin/bash\nhead -c "$1" /dev/zero\n',
}


def make_skills(root: Path) -> Path:
    """Write the skills ``trivial`` and ``heavy`` (the same with a binary asset of 10 MB) below ``root``."""
    for name in ("trivial", "heavy"):
        scripts = root / name / "scripts"
        scripts.mkdir(parents=True)
        (scripts.parent / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: Says hello. Use it to say hello.\n---\n\nRun scripts/trivial.py.\n"
        )
        for file, text in _SCRIPTS.items():
            (scripts / file).write_text(text)
            (scripts / file).chmod(0o755)
    asset = root / "heavy" / "assets" / "data.bin"
    asset.parent.mkdir()
    asset.write_bytes(b"\x89PNG\xff\xfe" + os.urandom(ASSET_BYTES - 6))
    return root
