"""
The pages whose commands are run, and the blocks of a page: ``tests/acceptance/test_guide.py`` runs them.

``python tests/guides.py`` counts them. A single block is left out by ``<!-- not run: REASON -->`` above it.
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
}
"""The pages that are run, each with the files that its reader is expected to have."""

NOT_RUN = {
    "howto/command-line": "they are refused on purpose, or change the shell: tests/unit/cli has them",
    "howto/computes": "a Slurm cluster: tests/integration/slurm",
    "howto/environments": "a package index: tests/acceptance/test_environments.py",
    "howto/running": "jobs of the reader, or a machine whose cores are held: tests/acceptance has such",
    "howto/system-metrics": "GPUs: tests/acceptance/test_cli_top.py has the rest",
    "howto/tracking": "a running TensorBoard: tests/acceptance/test_services.py",
    "howto/upkeep": "a home that was used for months: tests/acceptance has smaller ones",
    "tutorials/slurm": "a Slurm cluster: tests/integration/slurm",
}
"""The other pages with commands, each with what its commands need."""

_BLOCK = re.compile(r"(?:^<!-- not run: ([^\n]+) -->\n+)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    kind: str
    text: str
    why_not: str
    """Why it is not run; empty if it is."""


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page that begin at a line's start."""
    for why_not, kind, text in _BLOCK.findall(page.read_text()):
        yield Block(kind, text, why_not)


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
