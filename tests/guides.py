"""
The pages whose commands are run, where, and how: each test of ``PLACES`` follows those of its place.

``python tests/guides.py`` counts them. A single block is left out by ``<!-- not run: REASON -->`` above it; its
commands end with another exit code than 0 if ``<!-- exit code N -->`` is there.
"""

import functools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

COUNT = """\
import os

print("rank", os.environ.get("RANK"), "is done")
"""
JOB = "code: .\ncommand: python count.py\n"
TWO_BY_FOUR = f"""{JOB}inputs: {{lr: 0.1}}
resources: {{instance_count: 2}}
distribution: {{type: pytorch, process_count_per_instance: 4}}
"""
CONDA = """\
dependencies:
- python
- pip:
  - torch=2.0
"""
HERE: dict[str, dict[str, str]] = {
    "tutorials/quickstart": {},
    "tutorials/from-azure-ml": {},
    "tutorials/pipeline-and-sweep": {},
    "howto/agents": {"job.yml": JOB, "count.py": COUNT},
    "howto/assets": {},
    "howto/data": {},
    "howto/parallel": {},
    "howto/pipelines": {},
    "howto/sweeps": {},
    "explanation/warm-start": {"train.py": "import yaml\n\nprint(yaml.__version__)\n"},
    "howto/workspaces": {"job.yml": JOB, "count.py": COUNT},
    "howto/command-line": {"train.py": "import torch\n"},
    "howto/environments": {
        "job.yml": f"{JOB}environment: {{image: ubuntu, conda_file: conda.yml}}\n",
        "count.py": COUNT,
        "conda.yml": CONDA,
    },
    "howto/rehearsal": {
        name: (ROOT / "examples" / "rehearsal" / name).read_text() for name in ("job.yml", "src/train.py")
    },
    "howto/running": {"job.yml": TWO_BY_FOUR, "count.py": COUNT},
    "howto/upkeep": {},
    "reference/lint": {"job.yml": "command: |\n  python train.py\n  --epochs 3\n"},
}
"""The pages that are run on this machine, each with the files that its reader is expected to have."""

ON_SLURM: dict[str, dict[str, str]] = {
    "tutorials/slurm": {},
    "howto/computes": {"job.yml": f"{JOB}compute: azureml:gpu-cluster\n", "count.py": COUNT},
}
ON_KUBERNETES: dict[str, dict[str, str]] = {"howto/kubernetes": {}}
PLACES = {
    "HERE": (HERE, "acceptance/test_guide.py"),
    "ON_SLURM": (ON_SLURM, "integration/slurm/test_pages.py"),
    "ON_KUBERNETES": (ON_KUBERNETES, "integration/kubernetes/test_pages.py"),
}
"""The pages of each place, and the test that is parametrized with them."""

GIVEN = {name: files for pages, _ in PLACES.values() for name, files in pages.items()}
"""All pages that are run."""

BEFORE = {
    "howto/kubernetes": [
        'drumline compute attach --type kubernetes --name k8s --image none --python "$(which python3)"'
    ],
    "howto/rehearsal": ["drumline run --name calm_drum --procs 2 --detach -- sleep 1000"],
    "howto/running": [
        f"drumline job create -f job.yml --name {name} --stream" for name in ("calm_drum", "first", "second")
    ],
}
"""What its reader has run before."""

NOT_RUN = {
    "howto/isolated-nodes": "the right to make namespaces: tests/acceptance/test_isolated_nodes.py",
    "howto/scale": "a quiet machine for minutes: tests/acceptance/test_scale.py",
    "howto/tune": "PyTorch and a quiet machine: tests/acceptance/test_tune.py",
    "howto/system-metrics": "GPUs: tests/acceptance/test_cli_top.py has the rest",
    "howto/tracking": "a running TensorBoard: tests/acceptance/test_services.py",
}
"""The other pages with commands, each with what its commands need."""

TIMEOUT_S = 240
_FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)\n")
_BLOCK = re.compile(
    r"(?:^<!-- (?:not run: (?P<why_not>[^\n]+)|exit code (?P<code>\d+)) -->\n+)?"
    r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    kind: str
    text: str
    why_not: str
    """Why it is not run; empty if it is."""

    code: int
    """With which each of its commands ends."""


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page that begin at a line's start."""
    for found in _BLOCK.finditer(page.read_text()):
        yield Block(found["kind"], found["text"], found["why_not"] or "", int(found["code"] or 0))


def pages() -> list[Path]:
    return sorted(DOCS.glob("**/*.md"))


def name_of(page: Path) -> str:
    """As ``GIVEN`` has it."""
    return page.relative_to(DOCS).with_suffix("").as_posix()


def count() -> Counter[str]:
    """How many blocks of commands are run, and how many not, by reason; without one: its page."""
    found: Counter[str] = Counter()
    for page in pages():
        name = name_of(page)
        for block in blocks(page):
            if block.kind == "console":
                why_not = block.why_not or ("" if name in GIVEN else NOT_RUN.get(name, f"no reason: {name}"))
                found[why_not or "run"] += 1
    return found


def follow(
    page: str,
    folder: Path,
    prepare: Callable[[str], None] = lambda text: None,
    here: Mapping[str, str] | None = None,
    rewrite: Callable[[str], str] = lambda text: text,
    python: Sequence[str] = (sys.executable,),
) -> None:
    """
    Do in that folder what the page says, block by block. ``prepare`` is given a block's text before; ``here`` is what
    is printed for what the page has. ``rewrite``: changes the text of blocks of Python, which ``python`` runs.
    """
    for name, text in GIVEN[page].items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for command in BEFORE.get(page, ()):
        shell(f"$ {command}\n", folder)
    commands = 0
    for block in blocks(DOCS / f"{page}.md"):
        if block.why_not:
            continue
        prepare(block.text)
        commands += block.kind == "console"
        is_python = block.kind == "python"
        _do(block._replace(text=rewrite(block.text)) if is_python else block, folder, here or {}, python)
    assert commands


def _do(block: Block, folder: Path, here: Mapping[str, str], python: Sequence[str]) -> None:
    named = _FILE_NAME.match(block.text)
    if named:
        path = folder / named[1]
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text[named.end() :] if path.suffix == ".json" else block.text)
    elif block.kind == "python":
        run([*python, "-c", block.text], folder)
    elif block.kind == "console":
        shell(block.text, folder, block.code, here)


def run(argv: list[str], folder: Path) -> str:
    """Standard output and standard error of a command that ended with 0."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder)}
    with tempfile.TemporaryFile("w+") as out:
        done = subprocess.run(
            argv,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            timeout=TIMEOUT_S,
        )
        out.seek(0)
        said = out.read()
    assert done.returncode == 0, said
    return said


def shell(text: str, folder: Path, code: int = 0, here: Mapping[str, str] | None = None) -> None:
    """Each command of the text: whether it ended so, and printed what the page says; ``...`` is anything."""
    script = [
        "set -e" if code == 0 else "",
        f'drumline() {{ {shlex.quote(sys.executable)} -m drumline "$@"; }}',
    ]
    replaced = (here or {}).items()
    expected: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            expected.append([])
            script += [f"echo '=== {len(expected)}'", line[2:]]
            script += [f"[ $? = {code} ] || exit 99"] if code else []
        else:
            expected[-1].append(functools.reduce(lambda line, one: line.replace(*one), replaced, line))
    said = run(["bash", "-c", "\n".join(script)], folder)
    parts = re.split(r"^=== \d+\n", said, flags=re.MULTILINE)[1:]
    for lines, part in zip(expected, parts, strict=True):
        printed = part.splitlines()
        for line in lines:
            pattern = ".*".join(map(re.escape, line.split("...")))
            # The page leaves lines out by "..." alone; without it they are all there.
            assert line == "..." or any(re.fullmatch(pattern, text) for text in printed), (
                f"{line!r} in\n{part}"
            )
        assert "..." in lines or len(printed) == len(lines) or not lines, f"more than {lines} in\n{part}"


if __name__ == "__main__":
    for reason, number in count().most_common():
        print(f"{number:4}  {reason}")
