"""
Runs a parallel job on one node: a program without arguments.

Node n of N has the mini-batches n, n + N, n + 2N..., and gives them to its workers as they get free. What became of
each is a line of ``node-n.jsonl`` in a folder that all nodes share, so that a manager which is started again goes on
where the one before was killed. When all nodes have done, node 0 writes what was returned, in order.

DRUMLINE_PARALLEL holds the settings as JSON. A program for the user's own Python: it imports the standard library
alone, and keeps to the syntax of Python 3.9.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SETTINGS = "DRUMLINE_PARALLEL"
LEVEL = "DRUMLINE_PARALLEL_LEVEL"
INPUT, OUTPUT = "AZURE_ML_INPUT_", "AZURE_ML_OUTPUT_"
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "worker.py")
RESULT = "parallel_run_step.txt"
"""In an output that is a folder. Source: Azure's default name of the file that rows are appended to."""

MAX_SHOWN = 10
REPORT_INTERVAL_S = 10.0
POLL_INTERVAL_S = 0.2
END_TIMEOUT_S = 30
"""For ``shutdown()`` of a worker."""


class FailedError(Exception):
    """The job has failed, for a reason that was told."""

    def __init__(self, told: str, code: int = 1) -> None:
        super().__init__(told)
        self.code = code


class Failed(NamedTuple):
    """The failures so far."""

    batches: int = 0
    items: int = 0
    first: int = sys.maxsize
    """The lowest mini-batch of them, and why it has."""

    cause: str = ""

    def and_(self, other: Failed) -> Failed:
        first = min(self, other, key=lambda failed: failed.first)
        return Failed(self.batches + other.batches, self.items + other.items, first.first, first.cause)


class Settings(NamedTuple):
    """The settings as ``plan.distributions.parallel`` writes them. A threshold of -1: any number may fail."""

    script: str
    arguments: str
    """As they are written, with placeholders."""

    input: str
    folder: str
    nodes: int
    workers: int
    batch_size: int
    max_retries: int
    timeout_s: int
    most_batches: int
    most_items: int
    most_percent: float
    level: str
    output: Optional[str] = None
    """The output that rows are appended to; None: none."""

    below: str = ""
    """A path within it."""


def main() -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files need not be UTF-8. A line and its end are written at once, so that no other is glued to it.
            stream.reconfigure(errors="backslashreplace", line_buffering=True, write_through=False)
    settings = Settings(**json.loads(os.environ.pop(SETTINGS)))
    node = int(os.environ.get("NODE_RANK") or 0)
    items = list_items(os.environ[INPUT + settings.input])
    size = settings.batch_size
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    notes = Notes(settings, node)
    try:
        if node == 0:
            say(f"{plural(len(items), 'item')} in {plural(len(batches), 'mini-batch')}")
        Manager(settings, notes, batches, build_worker_words(settings)).run()
        notes.finish()
        if node == 0:
            notes.await_others()
            write_results(settings, notes, batches)
    except FailedError as error:
        print(error, file=sys.stderr, flush=True)
        return error.code
    return 0


_PLACEHOLDER = r"\$\{\{\s*(inputs|outputs)\.([\w.-]+?)(?:\.path)?\s*\}\}"


def build_worker_words(settings: Settings) -> list[str]:
    """Return the script and its arguments; a value stays one word, whatever it holds."""

    def optional(match: re.Match[str]) -> str:
        names = re.findall(_PLACEHOLDER, match[1])
        return match[1] if all(_name_variable(*name) in os.environ for name in names) else ""

    def value(match: re.Match[str]) -> str:
        return os.environ.get(_name_variable(match[1], match[2]), "")

    text = re.sub(r"\$\[\[(.*?)\]\]", optional, settings.arguments, flags=re.DOTALL)
    # A word must not be split at the blanks of a placeholder.
    text = re.sub(_PLACEHOLDER, lambda match: f"${{{{{match[1]}.{match[2]}}}}}", text)
    return [settings.script, *(re.sub(_PLACEHOLDER, value, word) for word in shlex.split(text))]


def _name_variable(group: str, name: str) -> str:
    return (INPUT if group == "inputs" else OUTPUT) + name


def list_items(path: str) -> list[str]:
    """List the files below a folder, in the order of their paths; a file is an item itself. Raises SystemExit."""
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path):
        raise SystemExit(f"input_data: there is no {path}")
    return sorted(_walk_files(path, frozenset()))


def _walk_files(folder: str, above: frozenset[str]) -> Iterator[str]:
    """Yield the files below a folder. Links are followed, but not in circles."""
    real = os.path.realpath(folder)
    if real in above:
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _walk_files(entry.path, above | {real})
            elif entry.is_file():
                yield entry.path


class Notes:
    """Notes about the mini-batches of this node, and, when they have done, of the others."""

    def __init__(self, settings: Settings, node: int) -> None:
        self._folder = settings.folder
        self._nodes = settings.nodes
        self._node = node
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._attempt = os.environ.get("DRUMLINE_ATTEMPT", "0")
        # What failed is tried again by a job that is started again.
        self.known = {note["batch"]: note for note in self._read(node) if not note["error"]}
        self.failed = Failed()
        """Those of this node, in this attempt."""
        self._file = open(self._path(node), "a", encoding="utf-8")  # noqa: SIM115 - open for as long as this lives
        self._file.write("\n")  # A line that was cut off by a kill is none.

    @property
    def _done(self) -> str:
        """Return the end of the names of files that mean that a node is done, in this attempt."""
        return f"done-{self._attempt}"

    def _path(self, node: int, end: str = "jsonl") -> str:
        return os.path.join(self._folder, f"node-{node}.{end}")

    def _read(self, node: int) -> Iterator[dict[str, Any]]:
        try:
            with open(self._path(node), encoding="utf-8") as file:
                for line in file:
                    with contextlib.suppress(ValueError):
                        yield json.loads(line)
        except FileNotFoundError:
            return

    def add(self, note: dict[str, Any]) -> None:
        self.known[note["batch"]] = {**note, "rows": []}
        self._file.write(json.dumps(note) + "\n")
        self._file.flush()
        if note["error"]:
            self.failed = self.failed.and_(read_failed(note))
            self._write(f"failed-{self._attempt}", self.failed)

    def failed_everywhere(self) -> Failed:
        failed = self.failed
        for node in range(self._nodes):
            with contextlib.suppress(OSError, ValueError):
                if node != self._node:
                    with open(self._path(node, f"failed-{self._attempt}"), encoding="utf-8") as file:
                        failed = failed.and_(Failed(*json.load(file)))
        return failed

    def finish(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        self._write(self._done, len(self.known))

    def await_others(self) -> None:
        """Block until every node has done; the job's supervisor sees to nodes that fail."""
        wanted = {os.path.basename(self._path(node, self._done)) for node in range(self._nodes)}
        while not wanted.issubset(os.listdir(self._folder)):
            time.sleep(POLL_INTERVAL_S)

    def all(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of every node, in the order of the mini-batches; a node's rows are read as they are wanted."""
        places: dict[int, tuple[int, int]] = {}
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(open(self._path(node), "rb")) for node in range(self._nodes)]
            for node, file in enumerate(files):
                start = 0
                for line in file:
                    with contextlib.suppress(ValueError):
                        places[json.loads(line)["batch"]] = (node, start)
                    start += len(line)
            for batch in sorted(places):
                node, start = places[batch]
                files[node].seek(start)
                yield json.loads(files[node].readline())

    def _write(self, end: str, content: Any) -> None:
        partial = self._path(self._node, f"{end}.partial")
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(partial, self._path(self._node, end))


def read_failed(note: dict[str, Any]) -> Failed:
    return Failed(1, note["failed"], note["batch"], note["error"]) if note["error"] else Failed()


class Worker:
    """A process that runs one mini-batch at a time."""

    def __init__(self, number: int, words: list[str], level: str) -> None:
        self.number = number
        self.channel, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603 - the user's own script
                [sys.executable, WORKER, str(theirs.fileno()), *words],
                env={**os.environ, **choose_gpus(number), LEVEL: level},
                pass_fds=[theirs.fileno()],
                # So that what it has started itself can be ended with it.
                start_new_session=True,
            )
        self.batch: Optional[int] = None
        self.deadline = float("inf")
        self.is_ready = False
        self.cause = ""
        """Why it ends before its first mini-batch, where it knows."""
        self._read = b""

    def fileno(self) -> int:
        return self.channel.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Send the worker a message; one that has ended is noticed when it falls silent."""
        with contextlib.suppress(OSError):
            self.channel.sendall(json.dumps(message).encode() + b"\n")

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages that have come. Raises EOFError at their end."""
        try:
            read = self.channel.recv(1 << 20)
        except ConnectionError:
            read = b""
        if not read:
            raise EOFError
        *lines, self._read = (self._read + read).split(b"\n")
        for line in lines:
            yield json.loads(line)

    def end(self) -> int:
        """Kill it, with what it has started, unless it has ended; its exit code."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.channel.close()
        return self.process.wait()


def choose_gpus(number: int) -> dict[str, str]:
    """Choose a worker's GPU: the workers of a node share its GPUs in turn."""
    gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    return {"CUDA_VISIBLE_DEVICES": gpus[number % len(gpus)]} if len(gpus) > 1 else {}


class Manager:
    """The mini-batches of one node."""

    def __init__(self, settings: Settings, notes: Notes, batches: list[list[str]], words: list[str]) -> None:
        self._settings = settings
        self._notes = notes
        self._batches = batches
        self._words = words
        mine = range(notes._node, len(batches), settings.nodes)
        self._left = deque(batch for batch in mine if batch not in notes.known)
        self._tries: dict[int, int] = {}
        self._selector = selectors.DefaultSelector()
        self._workers: set[Worker] = set()
        self._said = time.monotonic()

    def run(self) -> None:
        """Block until every mini-batch has an end. Raises FailedError."""
        try:
            for number in range(min(self._settings.workers, len(self._left))):
                self._start(number)
            while self._workers:
                soonest = min(worker.deadline for worker in self._workers)
                timeout_s = None if soonest == float("inf") else max(0.0, soonest - time.monotonic())
                ready = self._selector.select(timeout_s)
                for key, _ in ready:
                    self._listen(key.fileobj)  # type: ignore[arg-type]
                self._end_late()
        finally:
            for worker in self._workers:
                worker.end()

    def _start(self, number: int) -> None:
        worker = Worker(number, self._words, self._settings.level)
        self._workers.add(worker)
        self._selector.register(worker, selectors.EVENT_READ)

    def _listen(self, worker: Worker) -> None:
        try:
            for message in worker.messages():
                if message["kind"] == "broken":
                    worker.cause = message["error"]
                    continue
                if message["kind"] == "ready":
                    worker.is_ready = True
                elif message["kind"] == "done":
                    self._done(worker, message)
                else:
                    self._handle_failure(worker, message["error"])
                self._next(worker)
        except EOFError:
            self._handle_exit(worker)

    def _next(self, worker: Worker) -> None:
        if not self._left:
            worker.deadline = time.monotonic() + END_TIMEOUT_S
            worker.send({"kind": "end"})
            return
        batch = self._left.popleft()
        worker.batch, worker.deadline = batch, time.monotonic() + self._settings.timeout_s
        self._tries[batch] = self._tries.get(batch, 0) + 1
        keeps = self._settings.output is not None
        worker.send({"kind": "batch", "batch": batch, "items": self._batches[batch], "keeps": keeps})

    def _done(self, worker: Worker, message: dict[str, Any]) -> None:
        batch, count = worker.batch, message["count"]
        assert batch is not None
        missing = len(self._batches[batch]) - count
        if missing > 0:
            what = f"run() returned {count} for {plural(len(self._batches[batch]), 'item')}"
            self._handle_failure(worker, what, missing, message["rows"])
            return
        worker.batch = None
        self._notes.add({"batch": batch, "failed": 0, "error": "", "rows": message["rows"]})
        if time.monotonic() - self._said > REPORT_INTERVAL_S:
            self._said = time.monotonic()
            done, failed = len(self._notes.known), self._notes.failed.batches
            say(f"{plural(done, 'mini-batch')} done on this node, {failed} of them failed")

    def _handle_failure(
        self, worker: Worker, error: str, missing: Optional[int] = None, rows: Optional[list[str]] = None
    ) -> None:
        batch, worker.batch = worker.batch, None
        assert batch is not None
        items = self._batches[batch]
        most = self._settings.max_retries + 1
        tries = self._tries[batch]
        say(f"mini-batch {batch} failed, try {tries} of {most}: {error}; its items: {show_items(items)}")
        if tries < most:
            self._left.appendleft(batch)
            return
        missing = len(items) if missing is None else missing
        self._notes.add({"batch": batch, "failed": missing, "error": error, "rows": rows or []})
        check_errors(self._settings, self._batches, self._notes.failed_everywhere())

    def _handle_exit(self, worker: Worker) -> None:
        """Handle the end of a worker: after its last mini-batch, or in the middle of one."""
        self._forget(worker)
        with contextlib.suppress(subprocess.TimeoutExpired):
            worker.process.wait(END_TIMEOUT_S)
        code = worker.end()
        if not worker.is_ready:
            told = worker.cause or f"a worker {describe_end(code)} before its first mini-batch"
            raise FailedError(told, code if 0 < code < 128 else 1)
        if worker.batch is not None:
            self._handle_failure(worker, f"its worker {describe_end(code)}")
        elif code:
            say(f"a worker {describe_end(code)} after its last mini-batch")
        if self._left:
            self._start(worker.number)

    def _end_late(self) -> None:
        now = time.monotonic()
        for worker in [worker for worker in self._workers if worker.deadline <= now]:
            self._forget(worker)
            worker.end()
            if worker.batch is not None:
                self._handle_failure(worker, f"run() took longer than {self._settings.timeout_s} s")
            else:
                say(f"shutdown() took longer than {END_TIMEOUT_S} s")
            if self._left:
                self._start(worker.number)

    def _forget(self, worker: Worker) -> None:
        self._selector.unregister(worker)
        self._workers.discard(worker)


def check_errors(settings: Settings, batches: Sequence[list[str]], failed: Failed) -> None:
    """Raise FailedError where more have failed than may."""
    if 0 <= settings.most_batches < failed.batches:
        what = f"mini_batch_error_threshold {settings.most_batches} exceeded"
        raise FailedError(f"{what}: {summarize(batches, failed)}")
    if 0 <= settings.most_items < failed.items:
        of = plural(sum(map(len, batches)), "item")
        what = f"error_threshold {settings.most_items} exceeded: {failed.items} of {of} failed"
        raise FailedError(f"{what}; first: {failed.cause}")


def summarize(batches: Sequence[list[str]], failed: Failed) -> str:
    return f"{failed.batches} of {plural(len(batches), 'mini-batch')} failed; first: {failed.cause}"


def write_results(settings: Settings, notes: Notes, batches: list[list[str]]) -> None:
    """Write, on node 0, what was returned and what failed, when all have done. Raises FailedError."""
    place = choose_output_path(settings)
    failed = Failed()
    # Rows may be names of files, and those need not be UTF-8.
    partial = f"{place}.partial" if place else os.devnull
    with open(partial, "w", encoding="utf-8", errors="surrogateescape") as file:
        for note in notes.all():
            failed = failed.and_(read_failed(note))
            file.writelines(f"{row}\n" for row in note["rows"])
    if place:
        os.replace(partial, place)
    done = plural(len(batches), "mini-batch")
    say(f"{done} done, {failed.batches} of them failed, with {plural(failed.items, 'item')}")
    check_errors(settings, batches, failed)
    if failed.batches * 100 > settings.most_percent * len(batches):
        what = f"allowed_failed_percent {settings.most_percent:g} exceeded"
        raise FailedError(f"{what}: {summarize(batches, failed)}")
    if not batches:
        warn("input_data holds no files")
    elif failed.batches == len(batches):
        warn(summarize(batches, failed))


def choose_output_path(settings: Settings) -> str:
    """Return the file that rows go to; empty for none."""
    if settings.output is None:
        return ""
    place = os.environ[OUTPUT + settings.output] + settings.below
    if os.path.isdir(place):
        place = os.path.join(place, RESULT)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    return place


def describe_end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def show_items(items: list[str]) -> str:
    more = f" and {len(items) - MAX_SHOWN} more" if len(items) > MAX_SHOWN else ""
    return ", ".join(items[:MAX_SHOWN]) + more


def plural(count: int, word: str) -> str:
    many = f"{word}es" if word.endswith("ch") else f"{word}s"
    return f"{count} {word if count == 1 else many}"


def warn(text: str) -> None:
    print(f"warning: {text}", flush=True)


def say(text: str) -> None:
    print(f"parallel: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
