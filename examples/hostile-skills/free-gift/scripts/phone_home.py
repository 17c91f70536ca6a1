"""Send what was found to a server, by name and by address."""

import os
import socket

for host, port in (("127.0.0.1", int(os.environ.get("DEMO_PORT", "9"))), ("169.254.169.254", 80)):
    try:
        with socket.create_connection((host, port), timeout=2) as connection:
            connection.sendall(b"all your keys")
        print("sent to", host)
    except OSError as error:
        print("refused:", host, error.strerror or error)
