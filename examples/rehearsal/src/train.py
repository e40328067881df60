"""
A training that needs Python alone: all ranks average their gradients over TCP, and rank 0 saves a checkpoint.

It ends with the same loss to the last digit, however often it is interrupted.
"""

import argparse
import json
import os
import signal
import socket
import struct
import time
from pathlib import Path
from urllib.parse import unquote

CHECKPOINT = Path("outputs", "checkpoint.json")
PATIENCE_S = 30.0
"""For a peer to answer; then it is taken to be lost."""


class Peers:
    """The other ranks: rank 0 hears all of them, and tells them the mean."""

    def __init__(self, rank: int, size: int, address: str, port: int) -> None:
        self.size = size
        self.is_first = rank == 0
        if self.is_first:
            with socket.create_server(("", port)) as server:
                server.settimeout(PATIENCE_S)
                peers = [server.accept()[0] for _ in range(size - 1)]
            for peer in peers:
                peer.settimeout(PATIENCE_S)
            # By rank: the order of a sum decides on its last digit.
            self.peers = sorted(peers, key=receive)
        else:
            self.peers = [connect(address, port)]
            self.peers[0].sendall(struct.pack("d", rank))

    def average(self, value: float) -> float:
        """Return the mean of the values of all ranks."""
        if not self.is_first:
            self.peers[0].sendall(struct.pack("d", value))
            return receive(self.peers[0])
        mean = sum([value, *map(receive, self.peers)]) / self.size
        for peer in self.peers:
            peer.sendall(struct.pack("d", mean))
        return mean


def connect(address: str, port: int) -> socket.socket:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((address, port), PATIENCE_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def receive(peer: socket.socket) -> float:
    data = b""
    while len(data) < 8:
        part = peer.recv(8 - len(data))
        if not part:
            raise ConnectionError("a peer closed its connection")
        data += part
    return struct.unpack("d", data)[0]


def save(step: int, weight: float) -> None:
    """Write a checkpoint whole: nobody reads half of it."""
    partial = CHECKPOINT.with_suffix(".partial")
    partial.write_text(json.dumps({"step": step, "weight": weight}))
    partial.replace(CHECKPOINT)


def log(name: str, value: float, step: int) -> None:
    """Log a metric: with MLflow at a server, else in MLflow's own files without the second that its import takes."""
    uri = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not uri.startswith("file://"):
        import mlflow

        mlflow.log_metric(name, value, step=step)
        return
    found = Path(unquote(uri.removeprefix("file://"))).glob(f"*/{os.environ['MLFLOW_RUN_ID']}/metrics")
    with next(found).joinpath(name).open("a") as file:
        file.write(f"{int(time.time() * 1000)} {value} {step}\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between two steps")
    parser.add_argument("--save-every", type=int, default=10, help="steps")
    arguments = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    state = (0, 0.0)
    if CHECKPOINT.exists():
        saved = json.loads(CHECKPOINT.read_text())
        state = (saved["step"], saved["weight"])
    if rank == 0:
        print(f"begins at step {state[0]}", flush=True)

        def save_and_end(*_: object) -> None:
            save(*state)
            print(f"saved after step {state[0]}", flush=True)
            os._exit(0)

        # A preemption: there is time to save.
        signal.signal(signal.SIGTERM, save_and_end)

    peers = Peers(rank, size, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    while state[0] < arguments.steps:
        step, weight = state[0] + 1, state[1]
        # Each rank wants another weight; their mean is what all of them learn.
        gradient = peers.average(2 * (weight - rank))
        weight -= 0.02 * gradient
        state = (step, weight)
        if rank == 0:
            log("loss", (weight - (size - 1) / 2) ** 2, step)
            if step % arguments.save_every == 0:
                save(*state)
        time.sleep(arguments.pause)
    if rank == 0:
        save(*state)
        print(f"done after step {state[0]}: weight {state[1]:.9f}", flush=True)


if __name__ == "__main__":
    main()
