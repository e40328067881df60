"""
Runs examples with the Python of their environment, and writes the table of docs/howto/frameworks.md when all have run.

DRUMLINE_FRAMEWORKS names the environments that are there, DRUMLINE_FRAMEWORK_VENVS their folder; both are set by
``scripts/test --frameworks`` and read before any test begins.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import CommandResult
from frameworks import table
from frameworks.table import Example

CHOSEN = table.chosen_environments()
PYTHONS = {name: table.python_of(name) for name in (table.BASE, *table.environments())}
PAGE = table.ROOT / "docs" / "howto" / "frameworks.md"
BEGIN, END = "<!-- begin: what ran -->", "<!-- end: what ran -->"
TIMEOUT_S = 240.0

Runner = Callable[..., CommandResult]

_rows: dict[str, str] = {}
"""Of the examples that have run, by id."""


def versions_in(environment: str, names: tuple[str, ...]) -> dict[str, str]:
    """The releases that are installed there, by name; those that are not are left out."""
    program = (
        "import json, sys\n"
        "from importlib.metadata import PackageNotFoundError, version\n"
        "found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try: found[name] = version(name)\n"
        "    except PackageNotFoundError: pass\n"
        "print(json.dumps(found))\n"
    )
    done = subprocess.run(
        [PYTHONS[environment], "-c", program, *names], capture_output=True, text=True, check=True
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def skip_without(environment: str, *names: str) -> None:
    """Skip the test when its environment, or something in it, is not there."""
    if environment != table.BASE and environment not in CHOSEN:
        pytest.skip(f"needs the environment {environment}: scripts/test --frameworks {environment}")
    missing = set(names) - set(versions_in(environment, names))
    if missing:
        pytest.skip(f"not installed in the environment {environment}: {', '.join(sorted(missing))}")


@pytest.fixture
def example(request: pytest.FixtureRequest) -> Example:
    """The row, when its environment is there. Given by ``parametrize``."""
    row: Example = request.param
    skip_without(row.environment, *row.versions)
    if row.program and shutil.which(row.program, path=path_of(row.environment)) is None:
        pytest.skip(f"there is no {row.program}, which scripts/test installs as root")
    return row


def path_of(environment: str) -> str:
    """Where the ranks of a job look for programs."""
    return os.pathsep.join((str(Path(PYTHONS[environment]).parent), os.environ.get("PATH", os.defpath)))


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    """A copy of all of them, since a job must not write to where it came from."""
    ignored = shutil.ignore_patterns("downloaded", "outputs", "__pycache__")
    return shutil.copytree(table.EXAMPLES, tmp_path / "the examples", ignore=ignored)


@pytest.fixture
def run_in() -> Runner:
    """A Python program with the interpreter of an environment: ``run_in("jax", folder, "-m", "drumline", ...)``."""

    def run(
        environment: str, cwd: Path, *arguments: str | Path, timeout_s: float = TIMEOUT_S
    ) -> CommandResult:
        # Files, not pipes: a process that outlives the command would hold a pipe open, and us with it.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            done = subprocess.run(
                [PYTHONS[environment], *map(str, arguments)],
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                timeout=timeout_s,
                check=False,
            )
            out.seek(0)
            err.seek(0)
            return CommandResult(
                done.returncode, out.read().decode(errors="replace"), err.read().decode(errors="replace")
            )

    return run


@pytest.fixture
def record() -> Callable[[Example, str], None]:
    """For the document: this example has reached that figure."""

    def add(row: Example, figure: str) -> None:
        from drumline.plan.request import distribution_of
        from drumline.spec.load import load_job

        job = load_job(table.EXAMPLES / row.name / row.job_file)
        distribution = distribution_of(job).replace("plain", "none")
        versions = versions_in(row.environment, row.versions)
        said = ", ".join(f"{name} {versions[name].split('+')[0]}" for name in row.versions)
        file = "" if row.job_file == "job.yml" else f", `{row.job_file}`"
        link = f"[{row.name}](../examples/{row.name}/README.md){file}"
        _rows[row.id] = f"| {link} | {said} | {distribution} | `{figure}` |"

    return add


def pytest_sessionfinish(session: pytest.Session) -> None:
    """The table is written when every row of it has just been made."""
    if not {row.environment for row in table.TABLE} <= {table.BASE, *CHOSEN}:
        return
    if set(_rows) != {row.id for row in table.TABLE}:
        return
    head, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, tail = rest.partition(END)
    lines = ["| example | versions | distribution | figure |", "| --- | --- | --- | --- |"]
    lines += [_rows[row.id] for row in table.TABLE]
    text = "\n".join([head + BEGIN, "", *lines, "", END + tail])
    new = PAGE.with_suffix(".new")
    new.write_text(text)
    os.replace(new, PAGE)
