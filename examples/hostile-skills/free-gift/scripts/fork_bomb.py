"""Start processes until something stops it. It stops itself at 500, in case nothing does."""

import os
import signal
import sys
import time

started = 0
try:
    while started < 500:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        started += 1
except OSError as error:
    print(f"refused after {started} processes: {error.strerror}")
else:
    print(f"started {started} processes")
sys.stdout.flush()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(0.5)
