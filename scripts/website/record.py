"""
``scripts/record``: real runs in a terminal of their own, as asciicast (version 2) and as a picture of it.

A recording is what the commands printed, at the times at which they did; longer pauses than ``LONGEST_S`` are cut, the
folder of the recording is shown as ``~``, and the commands are typed by this program.
"""

import codecs
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import NamedTuple

from website import terminal

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "recordings"
COLUMNS, ROWS = 100, 28
LONGEST_S = 1.5
PATIENCE_S = 120
PROMPT = "\x1b[32m$\x1b[0m "

TRAIN = """\
import os
import sys
import time

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def step(number, rate):
    time.sleep(0.25)
    if "--poison" in sys.argv and rank == 3 and number == 2:
        raise ValueError("loss is nan at step 2")
    if rank == 0:
        print(f"step {number} loss {1 / (1 + rate * number):.3f}")


for number in range(4):
    step(number, rate=0.7)
print(f"rank {rank} of {world} is done")
"""
HANG = """\
import os
import pathlib
import time

rank = int(os.environ["RANK"])


def load_batch():
    time.sleep(600)


def wait_for_others():
    while len(list(pathlib.Path("ready").iterdir())) < 4:
        time.sleep(0.1)


print(f"rank {rank} starts")
if rank == 2:
    load_batch()
pathlib.Path("ready", str(rank)).touch()
wait_for_others()
"""
TRIAL = """\
import sys
import time

from drumline.v1 import Run

rate, weight = float(sys.argv[1]), 1.0
for _ in range(5):
    time.sleep(0.1)
    weight -= rate * weight
    Run.get_context().log("loss", weight * weight + rate / 10)
"""
SWEEP = """\
type: sweep
trial:
  code: .
  command: python trial.py ${{search_space.lr}}
search_space:
  lr: {type: choice, values: [0.05, 0.1, 0.3, 0.6]}
sampling_algorithm: grid
objective: {goal: minimize, primary_metric: loss}
limits: {max_total_trials: 4, max_concurrent_trials: 2}
"""


class Scene(NamedTuple):
    title: str
    files: dict[str, str]
    commands: tuple[str, ...]
    before: str = ""
    """A command that is run first, and not shown."""

    after: str = ""


SCENES = {
    "run": Scene(
        "A script on two nodes with two processes each",
        {"train.py": TRAIN},
        ("drumline run --nodes 2 --procs 2 -- python train.py",),
    ),
    "crash": Scene(
        "A rank fails, and the job says which and why",
        {"train.py": TRAIN},
        ("drumline run --nodes 2 --procs 2 -- python train.py --poison",),
    ),
    "stacks": Scene(
        "Where each rank of a job that does not go on is",
        {"train.py": HANG, "ready/.keep": ""},
        ("drumline job stacks stuck",),
        before="rm ready/.keep; drumline run --nodes 2 --procs 2 --name stuck -d -- python train.py; sleep 2",
        after="drumline job cancel -n stuck --at-once",
    ),
    "sweep": Scene(
        "Four trials of one job, and the best of them",
        {"trial.py": TRIAL, "sweep.yml": SWEEP},
        (
            "drumline job create -f sweep.yml --name lr-sweep --stream",
            "drumline job show -n lr-sweep --query best_trial -o yaml",
        ),
    ),
}


def record(name: str) -> None:
    """Write the two files of a scene."""
    scene = SCENES[name]
    with tempfile.TemporaryDirectory(prefix="drumline-recording-") as place:
        folder = Path(place, "work")
        for file, text in scene.files.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        environment = _environment(place)
        events: list[tuple[float, str]] = []
        try:
            _quietly(scene.before, folder, environment)
            for command in scene.commands:
                _type(command, events)
                _run(command, folder, environment, events)
        finally:
            _quietly(scene.after, folder, environment)
            _quietly("drumline warm stop", folder, environment)
        clean = [(round(at, 2), _without_paths(text, place)) for at, text in _without_pauses(events)]
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.cast").write_text(to_cast(scene.title, clean))
    (FOLDER / f"{name}.svg").write_text(terminal.picture(clean, COLUMNS, scene.title))


def to_cast(title: str, events: list[tuple[float, str]]) -> str:
    head = {"version": 2, "width": COLUMNS, "height": ROWS, "title": title}
    lines = [head, *([at, "o", text] for at, text in events)]
    return "".join(json.dumps(line) + "\n" for line in lines)


def from_cast(text: str) -> tuple[str, list[tuple[float, str]]]:
    """Return the title and the events of a recording."""
    head, *lines = [json.loads(line) for line in text.splitlines()]
    return str(head["title"]), [(float(at), str(data)) for at, _, data in lines]


def _environment(place: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key in ("LANG", "LC_ALL", "TMPDIR")}
    paths = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    more = {"HOME": place, "DRUMLINE_HOME": f"{place}/drumline", "PATH": paths, "TERM": "xterm-256color"}
    return {**kept, **more, "COLUMNS": str(COLUMNS), "LINES": str(ROWS)}


def _quietly(command: str, folder: Path, environment: dict[str, str]) -> None:
    if command:
        subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=False,
        )


def _type(command: str, events: list[tuple[float, str]]) -> None:
    at = events[-1][0] + 1 if events else 0.3
    events.append((at, PROMPT))
    for number, word in enumerate(re.findall(r"\S+ ?", command)):
        events.append((at + 0.5 + 0.1 * number, word))
    events.append((events[-1][0] + 0.4, "\r\n"))


def _run(command: str, folder: Path, environment: dict[str, str], events: list[tuple[float, str]]) -> None:
    """Run one command in a terminal, and add what it prints."""
    began, offset = time.monotonic(), events[-1][0]
    child, master = pty.fork()
    if not child:
        os.chdir(folder)
        os.execvpe("bash", ["bash", "-c", command], environment)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        while time.monotonic() - began < PATIENCE_S:
            if not select.select([master], [], [], 1)[0]:
                continue
            try:
                data = os.read(master, 65536)
            except OSError:
                break
            if not data:
                break
            events.append((offset + time.monotonic() - began, decoder.decode(data)))
        else:
            raise SystemExit(f"record: {command} did not end")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(master)


def _without_pauses(events: list[tuple[float, str]]) -> list[tuple[float, str]]:
    found: list[tuple[float, str]] = []
    cut = before = 0.0
    for at, text in events:
        cut += max(0.0, at - before - LONGEST_S)
        before = at
        found.append((at - cut, text))
    return found


def _without_paths(text: str, place: str) -> str:
    return re.sub(re.escape(place) + r"(?:/work)?", "~", text)


def main() -> None:
    names = sys.argv[1:] or list(SCENES)
    for name in names:
        if name not in SCENES:
            sys.exit(f"record: there is no {name!r}; there are {', '.join(SCENES)}")
    for name in names:
        record(name)
        print(f"record: docs/recordings/{name}.cast and .svg")


if __name__ == "__main__":
    main()
