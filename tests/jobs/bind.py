"""Rank 0 binds MASTER_PORT as the strictest program would; the others connect to it."""

import os
import socket
import time

address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if os.environ["RANK"] == "0":
    with socket.socket() as server:
        server.bind(("", address[1]))
        server.listen()
        for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
            server.accept()[0].close()
else:
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(address).close()
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
