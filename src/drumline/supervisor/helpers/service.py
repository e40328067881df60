"""
One program beside the ranks, a child of the supervisor: ``python -m drumline.supervisor.helpers.service FOLDER NAME``.

It starts the program, says in the events where it is to be found, and ends with the supervisor, the program with it.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import signal
import subprocess
import sys
import time

from drumline.contract import events as e
from drumline.contract.folder import RunFolder
from drumline.contract.plan import Plan, Service
from drumline.linux import kernel

PROGRAM = os.path.join(os.path.dirname(__file__), "tensorboard_program.py")


def main(arguments: list[str]) -> int:
    """Run a service's program; block until it ends, and return the exit code."""
    kernel.die_with_parent(signal.SIGKILL, os.getppid())
    kernel.lose_output_without_room()
    os.umask(0o077)
    folder = RunFolder(os.path.abspath(arguments[0]))
    service = next(one for one in Plan.read(folder.plan).services if one.name == arguments[1])
    # In a container the ranks have none that is one here.
    tried = list(dict.fromkeys(filter(None, (service.python, sys.executable))))
    for python in tried:
        if _serve(folder, service, python):
            return 0
    install = f"{shlex.quote(tried[0])} -m pip install tensorboard"
    why = f"no TensorBoard starts with {' or '.join(tried)}; {install}, or see {folder.system_logs}"
    folder.append(e.ServiceStarted(time.time(), service.name, service.kind, error=why))
    return 1


def _serve(folder: RunFolder, service: Service, python: str) -> bool:
    """Serve until it ends; False when it said neither where it is nor why it cannot be there."""
    with open(PROGRAM, encoding="utf-8") as file:
        text = file.read()
    ours = os.getpid()
    try:
        process = subprocess.Popen(  # noqa: S603 - our own text
            [python, "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            preexec_fn=lambda: kernel.die_with_parent(signal.SIGKILL, ours),  # noqa: PLW1509 - no thread here
        )
    except OSError as error:
        print(f"{python}: {error}", file=sys.stderr)
        return False
    assert process.stdin is not None
    assert process.stdout is not None
    told = {"folder": service.folder, "port": service.port, "secret": secrets.token_urlsafe(16)}
    try:
        process.stdin.write(json.dumps(told).encode() + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        process.wait()
        return False
    said = process.stdout.readline().decode("utf-8", "replace").strip()
    why = said.removeprefix("error: ") if said.startswith("error: ") else ""
    if said:
        where = "" if why else said
        folder.append(e.ServiceStarted(time.time(), service.name, service.kind, where, error=why))
    code = process.wait()
    if said and not why:
        # Whoever ends the job ends this process first.
        why = f"TensorBoard has ended with code {code}; see its log in system_logs"
        folder.append(e.ServiceStarted(time.time(), service.name, service.kind, error=why))
    return bool(said)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
