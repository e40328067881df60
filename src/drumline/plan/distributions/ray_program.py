"""
The programs that the processes of a Ray job begin as on their nodes, and what they become.

    head HOST:PORT EXTRA OPTION...    ``ray start --head``
    worker HOST:PORT EXTRA OPTION...  ``ray start``, once the head answers
    command WORD...                   the job's command, once every node is in the cluster

EXTRA: the user's own options, as JSON. A plan carries this file as text, for ``python3 -c`` of the ranks' own Python:
it imports the standard library alone, Ray where it has to, and keeps to the syntax of Python 3.9.
"""

import errno
import importlib.util
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

HEAD_TIMEOUT_S = 90
"""For the head to answer. On two busy cores it takes 3 to 24 s."""

NODES_TIMEOUT_S = 60.0
NODE_TIMEOUT_S = 15.0
"""For all nodes to be in the cluster, and for each on top: those of one machine start one after the other."""

POLL_S = 0.1

SOCKET_BYTES = 64
"""What Ray appends to its folder: /session_2026-11-21_12-22-28_334502_1234567/sockets/plasma_store."""

LONGEST_SOCKET = 107
"""Source: unix(7), sun_path."""

LARGEST_STORE = 1_000_000_000
SMALLEST_STORE = 80_000_000
"""Bytes of shared memory, of a node that may share its machine with others. Ray would take 30 % of it for each."""


def main(mode: str, *words: str) -> "NoReturn":
    share_token()
    if mode == "command":
        wait_for_nodes()
        become(list(words))
    address, extra, *options = words
    host, _, port = address.rpartition(":")
    if shutil.which("ray") is None:
        fail("there is no program 'ray' on the PATH; install Ray where the job runs: pip install ray", 127)
    if mode == "head":
        check_port(int(port))
        role = ["--head", f"--port={port}", "--disable-usage-stats"]
    else:
        wait_for_head(host, int(port))
        role = [f"--address={address}"]
    if not os.environ.get("OMP_NUM_THREADS"):
        os.environ.pop("OMP_NUM_THREADS", None)
    # Whoever ends a job ends its command too, so there is nothing to drain.
    os.environ.setdefault("RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "0")
    given: list[str] = json.loads(extra)
    if importlib.util.find_spec("grpc") is None:
        # Then there is no server for Ray clients, and Ray refuses a port for it.
        options = [option for option in options if not option.startswith("--ray-client-server-port=")]
    own = [*options, *size(), f"--temp-dir={temp_folder()}"]
    quieten()
    # Of an option that is there twice Ray takes the last one, so the user's win.
    become(["ray", "start", "--block", *role, *own, *given])


def quieten() -> None:
    """Send Ray's thirty lines of good advice to system_logs; its errors stay."""
    node = int(os.environ["AZUREML_CR_NODE_RANK"])
    path = os.path.join(os.environ["DRUMLINE_RUN_FOLDER"], "system_logs", f"ray-node-{node}.log")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.close(descriptor)


def share_token() -> None:
    """
    Share a token among Ray's nodes: it listens on all interfaces, and would run any program for anybody.

    The first process of the job makes it, where they all see it and nobody else does.
    """
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    if any(name in os.environ for name in names):
        return
    folder = os.environ["DRUMLINE_RUN_FOLDER"]
    path = os.path.join(folder, "ray_token")
    descriptor, own = tempfile.mkstemp(dir=folder)
    os.write(descriptor, os.urandom(32).hex().encode())
    os.close(descriptor)
    try:
        os.link(own, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(own)
    os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": path})


def check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                fail(f"port {port} is taken on this node; without distribution.port a free one is chosen")
            fail(f"port {port} cannot be used on this node: {error.strerror}")


def size() -> list[str]:
    """Return the options for the cores that this node's ranks may use, and for memory that a laptop can spare."""
    options = [f"--num-cpus={len(os.sched_getaffinity(0))}"]
    if any(word.startswith("--node-ip-address=127.") for word in sys.argv):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        share = memory * 3 // 10 // node_count()
        options.append(f"--object-store-memory={max(SMALLEST_STORE, min(LARGEST_STORE, share))}")
    return options


def temp_folder() -> str:
    folder = tempfile.gettempdir()
    longest = LONGEST_SOCKET - SOCKET_BYTES
    if len(os.fsencode(folder)) > longest:
        fail(
            f"{folder} is too long for the sockets that Ray makes below it ({longest} bytes at most); "
            "submit the job with a shorter TMPDIR"
        )
    return folder


def wait_for_head(host: str, port: int) -> None:
    deadline = time.monotonic() + HEAD_TIMEOUT_S
    while True:
        try:
            socket.create_connection((host, port), 1.0).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                fail(
                    f"the Ray head at {host}:{port} did not answer within {HEAD_TIMEOUT_S} s ({error}); "
                    "see user_logs/std_log_node_00_ray.txt"
                )
        time.sleep(POLL_S)


def wait_for_nodes() -> None:
    """Wait until Ray itself says that every node is there."""
    if importlib.util.find_spec("ray") is None:
        fail(f"{sys.executable} has no module 'ray'; install Ray where the job runs: pip install ray", 127)
    host, _, port = os.environ["RAY_ADDRESS"].rpartition(":")
    wait_for_head(host, int(port))
    import ray  # type: ignore[import-not-found]

    count = node_count()
    deadline = time.monotonic() + NODES_TIMEOUT_S + count * NODE_TIMEOUT_S
    ray.init(log_to_driver=False, logging_level="ERROR")
    while True:
        alive = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
        if len(alive) >= count:
            break
        if time.monotonic() > deadline:
            fail_for(alive, count)
        time.sleep(POLL_S)
    ray.shutdown()


def fail_for(alive: set[str], count: int) -> "NoReturn":
    hosts = os.environ.get("AZ_BATCH_HOST_LIST", "").split(",")
    # Node 0 is there, or nobody would have answered; Ray may know it by another address.
    missing = [node for node, host in enumerate(hosts) if node and host not in alive]
    which = ", ".join(f"node {node} (user_logs/std_log_node_{node:02d}_ray.txt)" for node in missing)
    fail(f"only {len(alive)} of {count} nodes are in the Ray cluster; missing, with their logs: {which}")


def node_count() -> int:
    return int(os.environ["AZUREML_NODE_COUNT"])


def become(words: list[str]) -> "NoReturn":
    """Become another program, with the signals reset that Python ignores: else a shell pipeline would never end."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    try:
        os.execvp(words[0], words)  # noqa: S606 - Ray, or the user's own program
    except OSError as error:
        code = 126 if isinstance(error, PermissionError) else 127
        fail(f"could not start {words[0]!r}: {error.strerror}", code)


def fail(sentence: str, code: int = 1) -> "NoReturn":
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()
    # At once: a Ray that was reached has threads, and may say more than there is to say.
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
