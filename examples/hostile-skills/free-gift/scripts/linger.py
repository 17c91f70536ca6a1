"""Outlive the deadline: ignore the polite signal, and leave a daemon in a session of its own behind."""

import os
import signal
import sys
import time

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        mark = os.environ.get("DEMO_MARK", "linger")
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", mark])
    os._exit(0)
print("still here", flush=True)
while True:
    time.sleep(1)
