"""
What stands for TensorFlow where it is not installed: finds its task and the other workers in TF_CONFIG as
TFConfigClusterResolver does, listens at its own address, and adds up with the others what each of them has.

Takes the arguments of examples/azure/tensorflow-mnist/src/main.py.
"""

import argparse
import json
import os
import socket
import time
from pathlib import Path

PATIENCE_S = 60.0


def address_of(worker):
    host, _, port = worker.rpartition(":")
    return host, int(port)


def tell(worker, message):
    """Wait until the worker listens, and send it the message."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with socket.create_connection(address_of(worker), timeout=PATIENCE_S) as connection:
                connection.sendall(message)
            return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def all_gather(workers, index, value):
    """The values of all workers, by index."""
    values = {index: value}
    with socket.create_server(address_of(workers[index])) as server:
        server.settimeout(PATIENCE_S)
        for other in range(len(workers)):
            if other != index:
                tell(workers[other], json.dumps([index, value]).encode())
        while len(values) < len(workers):
            with server.accept()[0] as connection, connection.makefile() as file:
                sender, theirs = json.load(file)
            values[sender] = theirs
    return [values[one] for one in range(len(workers))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    arguments = parser.parse_args()
    assert os.environ["TF_USE_LEGACY_KERAS"] == "1"
    tf_config = json.loads(os.environ["TF_CONFIG"])
    workers, task = tf_config["cluster"]["worker"], tf_config["task"]
    assert task["type"] == "worker"
    labels = [int(line.rpartition(",")[2]) for line in arguments.data.read_text().splitlines()]
    share = sum(labels[task["index"] :: len(workers)])
    gathered = all_gather(workers, task["index"], share)
    if task["index"] == 0:
        arguments.model_dir.mkdir(parents=True)
        (arguments.model_dir / "gathered.json").write_text(json.dumps(gathered))
    print(f"worker {task['index']} of {len(workers)}: {sum(gathered)}", flush=True)


if __name__ == "__main__":
    main()
