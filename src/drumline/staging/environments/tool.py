"""Programs that build: their output goes to a log, and its end into the message about a failure."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError
from drumline.contract.hiding import hide_in_text
from drumline.linux import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence


# The last error of a resolver as one sentence: without frames, colours and secrets.

_MOST = 600
_NEAR = 2
_SEQUENCES = r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)"
_CROSS = chr(0xD7)
_FRAME = "".join(("[", chr(0x2500), "-", chr(0x257F), chr(0x25B6), "]+"))
"""What uv draws its causes with, and libmamba its trees: lines, and an arrow. A cross stands before an error."""

_WRAPPED = 60
"""A line of so many characters goes on in the next one, which then begins with a small letter."""

_BEGIN = re.compile(
    r"^(?:error\b|ERROR:|critical\b|fatal:|\w*(?:Error|NotFound|Exception)\b|[x!] )", re.IGNORECASE
)
_NOISE = re.compile(
    r"^(?:Using Python|WARNING:|warning\b|\[notice\]|Traceback|hint: See|info\s)", re.IGNORECASE
)
_TOKEN = re.compile(r"/t/[^/\s]+/")


def summarize_output(output: str) -> str:
    r"""
    Summarize the output of a program that failed; empty if it printed nothing.

    >>> summarize_output("Using Python 3.11\nerror: No solution found\n  cause: Because x==9 is not there\n")
    'No solution found: Because x==9 is not there'
    """
    lines = [_clean_line(line) for line in re.sub(_SEQUENCES, "", output).replace("\r", "\n").split("\n")]
    lines = [line for line in lines if line and not _NOISE.match(line)]
    begins = [index for index, line in enumerate(lines) if _BEGIN.match(line)]
    said = lines[_block(lines, begins) :] if begins else lines[-4:]
    return hide_secrets(_join_lines(said))


def hide_secrets(text: str) -> str:
    """
    Hide tokens and passwords of addresses in a text, also those that channels of conda have in their paths.

    >>> hide_secrets("https://me:secret@host/t/secret/simple")
    'https://...@host/t/***/simple'
    """
    return _TOKEN.sub("/t/***/", hide_in_text(text))


def _clean_line(line: str) -> str:
    line = re.sub(_FRAME, " ", line.replace(_CROSS, "error: "))
    return " ".join("".join(one if one.isprintable() else " " for one in line).split())


def _block(lines: list[str], begins: list[int]) -> int:
    """Return where the last error starts: pip has two lines, libmamba the reason first and at last that it gives up."""
    first = begins[-1]
    for index in reversed(begins[:-1]):
        if first - index > _NEAR and not lines[first].startswith("critical"):
            break
        first = index
    return first


def _join_lines(lines: list[str]) -> str:
    parts: list[str] = []
    for line in lines:
        part = re.sub(
            r"^(?:(?:error|cause|critical|fatal|x)\b:?|ERROR:)\s*(?:libmamba\s+)?",
            "",
            line,
            flags=re.IGNORECASE,
        )
        if part and part not in parts:
            parts.append(part)
    text = before = ""
    for part in parts:
        text += _between(text, before, part) + part
        before = part
    text = text.rstrip(" .:")
    return text if len(text) <= _MOST else text[: _MOST - 4].rstrip() + " ..."


def _between(text: str, before: str, part: str) -> str:
    goes_on = text.endswith((":", ",", ".", ";")) or part[0] in "-("
    if not text or goes_on or (len(before) >= _WRAPPED and part[0].islower()):
        return " " if text else ""
    return ": "


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
