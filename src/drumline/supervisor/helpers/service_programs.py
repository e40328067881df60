"""The programs beside the ranks, each below a process of ours that speaks for it."""

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

# One program beside the ranks, a child of the supervisor:
# ``python -m drumline.supervisor.helpers.service_programs FOLDER NAME``.
#
# It starts the program, says in the events where it is to be found, and ends with the supervisor, the program with it.

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


class ServicePrograms:
    """The programs of services. They end with everything below the supervisor; each attempt has them started again."""

    def __init__(self, folder: RunFolder, plan: Plan) -> None:
        self._folder = folder
        self._plan = plan
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start the services that do not run. Raises OSError."""
        for service in self._plan.services:
            before = self._running.get(service.name)
            if before is None or before.poll() is not None:
                self._running[service.name] = self._start_program(service.name)

    def _start_program(self, name: str) -> subprocess.Popen[bytes]:
        import subprocess

        ours = os.getpid()
        plain = "".join(one if one.isascii() and (one.isalnum() or one in "-_") else "_" for one in name)[
            :100
        ]
        log = os.path.join(self._folder.system_logs, f"service-{plain}.log")
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab") as output:
            return subprocess.Popen(  # noqa: S603 - our own module
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "drumline.supervisor.helpers.service_programs",
                    self._folder.path,
                    name,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                # From its very beginning, for a moment later this process may be gone.
                preexec_fn=lambda: kernel.die_with_parent(signal.SIGKILL, ours),  # noqa: PLW1509 - no thread here
            )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
