"""Programs that build: their output goes to a log, and its end into the message about a failure."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.linux import kernel
from drumline.staging.environments.error_text import summarize_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_KEPT_BYTES = 1 << 16
"""Of a program's output, from its end."""

_TERMINATE_LIMIT_S = 2.0
_POLL_S = 0.5


class BuildError(NodeError):
    """The environment cannot be built; the message says why."""


class ToolError(BuildError):
    """A program has failed. ``words``: its last error; ``output``: the end of its output."""

    def __init__(self, argv: Sequence[str], code: int, output: str) -> None:
        self.words = summarize_output(output)
        self.output = output
        name = os.path.basename(argv[0])
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        super().__init__(self.words or f"{name} {how}, and said nothing")


class Tool:
    """
    A tool that builds environments. ``log``: the descriptor of a file or terminal. ``told``: called with what is being
    done, in words.
    """

    def __init__(
        self, log: int, told: Callable[[str], None], variables: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        self._told = told
        self._variables = dict(variables or {})

    def say(self, what: str) -> None:
        self._write(f"# {what}\n".encode())
        self._told(what)

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = "", stdin: bytes = b""
    ) -> None:
        """Run a program. Blocks. Raises ToolError; BuildError for a program that cannot be started."""
        self._write(f"$ {' '.join(argv)}\n".encode("utf-8", "replace"))
        process = self._start(argv, env, cwd, subprocess.STDOUT, has_input=bool(stdin))
        tail = b""
        try:
            assert process.stdout is not None
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.write(stdin)
                    process.stdin.close()
            for data in _read_output(process, process.stdout.fileno()):
                self._write(data)
                tail = (tail + data)[-_KEPT_BYTES:]
            code = process.wait()
        finally:
            _end_process(process)
        if code != 0:
            raise ToolError(argv, code, tail.decode("utf-8", "replace"))

    def output(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = "") -> str:
        """Return what a program prints; its errors go to the log. Raises as ``run``."""
        process = self._start(argv, env, cwd, self._log)
        try:
            said = process.communicate()[0]
        finally:
            _end_process(process)
        text = said.decode("utf-8", "replace")
        if process.returncode != 0:
            self._write(said)
            raise ToolError(argv, process.returncode, text)
        return text

    def _start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: str,
        errors: int,
        *,
        has_input: bool = False,
    ) -> subprocess.Popen[bytes]:
        parent = os.getpid()
        try:
            return subprocess.Popen(  # noqa: S603 - words, and no shell
                argv,
                stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=cwd or "/",
                env={**os.environ, **self._variables, **(env or {})},
                # Whoever kills this process leaves nothing that goes on to write into an environment.
                preexec_fn=lambda: _in_child(parent),  # noqa: PLW1509 - this process has no threads
            )
        except OSError as error:
            raise BuildError(f"{argv[0]} cannot be started: {error.strerror or error}") from error

    def _write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self._log, data)


def _read_output(process: subprocess.Popen[bytes], descriptor: int) -> Iterator[bytes]:
    """
    Yield what the process prints.

    A server that it has started for later, such as one of a compiler, may keep its output open.
    """
    while True:
        if select.select([descriptor], [], [], _POLL_S)[0]:
            data = os.read(descriptor, 1 << 16)
            if not data:
                return
            yield data
        elif process.poll() is not None:
            return


def _in_child(parent: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    kernel.die_with_parent(signal.SIGKILL, parent)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process that still runs, because this one is asked to end."""
    if process.stdout is not None:
        process.stdout.close()
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_TERMINATE_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def find_program(name: str, *folders: str) -> str:
    """Return its absolute path, on PATH, beside this Python or in ``folders``; empty if it is nowhere."""
    import shutil

    places = (os.path.dirname(sys.executable), *map(os.path.expanduser, folders))
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(places)) or ""
