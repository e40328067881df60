"""
The pages whose commands are run, and the blocks of a page: ``tests/acceptance/test_guide.py`` runs them.

``python tests/guides.py`` counts them. A single block is left out by ``<!-- not run: REASON -->`` above it; its
commands end with another exit code than 0 if ``<!-- exit code N -->`` is there.
"""

import re
from collections import Counter
from collections.abc import Iterator
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
GIVEN: dict[str, dict[str, str]] = {
    "tutorials/quickstart": {},
    "tutorials/from-azure-ml": {},
    "tutorials/pipeline-and-sweep": {},
    "howto/assets": {},
    "howto/data": {},
    "howto/parallel": {},
    "howto/pipelines": {},
    "howto/sweeps": {},
    "explanation/warm-start": {"train.py": "import yaml\n\nprint(yaml.__version__)\n"},
    "howto/workspaces": {"job.yml": JOB, "count.py": COUNT},
    "howto/command-line": {"train.py": "import torch\n"},
    "howto/computes": {},
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
}
"""The pages that are run, each with the files that its reader is expected to have."""

BEFORE = {
    "howto/rehearsal": ["drumline run --name calm_drum --procs 2 --detach -- sleep 1000"],
    "howto/running": [
        f"drumline job create -f job.yml --name {name} --stream" for name in ("calm_drum", "first", "second")
    ],
}
"""What its reader has run before."""

NOT_RUN = {
    "howto/isolated-nodes": "the right to make namespaces: tests/acceptance/test_isolated_nodes.py",
    "howto/kubernetes": "a Kubernetes cluster",
    "howto/scale": "a quiet machine for minutes: tests/acceptance/test_scale.py",
    "howto/tune": "PyTorch and a quiet machine: tests/acceptance/test_tune.py",
    "howto/system-metrics": "GPUs: tests/acceptance/test_cli_top.py has the rest",
    "howto/tracking": "a running TensorBoard: tests/acceptance/test_services.py",
    "tutorials/slurm": "a Slurm cluster: tests/integration/slurm",
}
"""The other pages with commands, each with what its commands need."""

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


if __name__ == "__main__":
    for reason, number in count().most_common():
        print(f"{number:4}  {reason}")
