"""Scripts that end in every way, for tests that compare two ways of running one."""

from __future__ import annotations

WAYS_TO_END = {
    "an exit with a sentence": "import sys; sys.exit('bad')",
    "an exit with a number": "import sys; sys.exit(7)",
    "an exit with a negative number": "import sys; sys.exit(-1)",
    "an exit with a truth value": "import sys; sys.exit(True)",
    "the builtin exit": "exit(3)",
    "an exception": "def f(): 1/0\nf()",
    "an interrupt": "raise KeyboardInterrupt",
    "an exit function": "import atexit; atexit.register(lambda: print('bye'))\nprint('x', end='')",
    "an exit function that fails": "import atexit; atexit.register(int, 'x')",
    "a thread": "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.1), print('thread'))).start()",
    "a daemon thread": "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    "the C library's buffers": "import ctypes; ctypes.CDLL(None).printf(b'c stdio\\n')",
    "a closed stdout": "import sys; sys.stdout.close()",
    "a closed descriptor": "import os; os.close(1); print('x')",
    "no stderr": "import sys; sys.stderr = None; 1/0",
    "an exit with the other truth value": "import sys; sys.exit(False)",
    "an exit with too large a number": "import sys; sys.exit(1 << 70)",
}
