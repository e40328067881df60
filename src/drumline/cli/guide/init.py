"""``drumline init``: a first job file, from flags, from questions on a terminal, and from a look at the folder."""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import TYPE_CHECKING, TypeVar

from drumline.cli.arguments import Parser
from drumline.contract.errors import SpecError, UsageError
from drumline.contract.record import NamedTuple
from drumline.spec.paths import default_experiment_name

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable


_Answer = TypeVar("_Answer")
_DISTRIBUTIONS = ("pytorch", "mpi", "tensorflow", "ray", "none")


class JobAnswers(NamedTuple):
    """The answers that a job file is made of."""

    command: str
    nodes: int
    procs: int
    distribution: str
    environment: str
    compute: str


def main(argv: list[str]) -> int:
    arguments = _make_parser().parse_args(argv)

    out = arguments.out
    if os.path.lexists(out):
        raise UsageError(
            f"{out} exists, and is not overwritten", f"drumline init --out {shlex.quote(_find_free(out))}"
        )
    folder = os.path.dirname(os.path.abspath(out))
    if not os.path.isdir(folder):
        raise UsageError(f"there is no folder {folder}", "create it first")
    facts = look_at(folder)
    answers = _make_answers(arguments, facts)
    options = (arguments.command, arguments.nodes, arguments.procs, arguments.distribution)
    is_silent = arguments.yes or any(
        value is not None for value in (*options, arguments.environment, arguments.compute)
    )
    if not is_silent and sys.stdin.isatty() and sys.stderr.isatty():
        answers = _ask(answers, facts)
    text = _make_file(answers, facts)
    _check(text, folder)
    try:
        with open(out, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{out} exists, and is not overwritten", "drumline init --out FILE") from None
    print(f"wrote {out}", file=sys.stderr)
    print(f"next: drumline job create -f {shlex.quote(out)} --stream", file=sys.stderr)
    return 0


def _make_parser() -> Parser:
    parser = Parser(
        prog="drumline init",
        description="Write a job file for the program in this folder. On a terminal, without options, it asks.",
    )
    parser.add_argument(
        "--command", help="the command that every rank runs; default: from the scripts of the folder"
    )
    parser.add_argument("--nodes", type=int, metavar="N", help="the number of nodes; default 1")
    parser.add_argument("--procs", type=int, metavar="P", help="processes on each node; default 1")
    text = "how ranks find each other; default: from the imports of the script"
    parser.add_argument("--distribution", choices=_DISTRIBUTIONS, help=text)
    text = "azureml:NAME@latest, a conda file, or a requirements.txt; default: the Python that submits"
    parser.add_argument("--environment", metavar="E", help=text)
    parser.add_argument("--compute", metavar="NAME", help="an attached compute; default: this machine")
    parser.add_argument("--out", metavar="FILE", default="job.yml", help="the file to write; default job.yml")
    parser.add_argument("-y", "--yes", action="store_true", help="ask nothing")
    return parser


def _find_free(out: str) -> str:
    stem, ending = os.path.splitext(out)
    return next(path for number in range(2, 1000) if not os.path.lexists(path := f"{stem}-{number}{ending}"))


def _make_answers(arguments: Namespace, facts: FolderFacts) -> JobAnswers:
    procs = 1 if arguments.procs is None else arguments.procs
    nodes = 1 if arguments.nodes is None else arguments.nodes
    for option, count in (("--nodes", nodes), ("--procs", procs)):
        if count < 1:
            raise UsageError(f"{option} must be at least 1; got {count}")
    distribution = arguments.distribution or facts.distribution
    if distribution == "none" and procs > 1:
        if arguments.distribution:
            raise UsageError("--procs needs a distribution", "--distribution pytorch")
        distribution = "pytorch"
    if distribution in ("tensorflow", "ray") and procs > 1:
        what = f"--procs: {distribution} has one process on each node"
        raise UsageError(what, "--nodes sets the number of processes")
    environment = arguments.environment or ""
    return JobAnswers(
        arguments.command or facts.command, nodes, procs, distribution, environment, arguments.compute or ""
    )


# questions


def _ask(answers: JobAnswers, facts: FolderFacts) -> JobAnswers:
    """Ask for each answer; an empty line takes the one in brackets."""
    print(f"A job file for {facts.folder}. Enter keeps what is in brackets.", file=sys.stderr)
    distributions = ", ".join(_DISTRIBUTIONS)

    def parse_distribution(text: str) -> str:
        if text.lower() not in _DISTRIBUTIONS:
            raise ValueError(f"{text!r} is not one of {distributions}")
        return text.lower()

    def parse_yes(text: str) -> bool:
        if text.lower() not in ("y", "yes", "n", "no"):
            raise ValueError("yes or no")
        return text.lower() in ("y", "yes")

    distribution = _read(f"distribution: {distributions}", answers.distribution, parse_distribution)
    command = _read("command", answers.command, str)
    nodes = _read("nodes", "1", _parse_count)
    procs = 1
    if distribution in ("pytorch", "mpi"):
        procs = _read("processes on each node", "1", _parse_count)
    environment = ""
    if facts.packages:
        packages = _read(f"install {facts.packages} for the job: yes, no", "no", parse_yes)
        environment = facts.packages if packages else ""
    compute = _read("compute", "local", str)
    return JobAnswers(command, nodes, procs, distribution, environment, "" if compute == "local" else compute)


def _read(question: str, default: str, parse: Callable[[str], _Answer]) -> _Answer:
    while True:
        print(f"{question} [{default}]: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            print(file=sys.stderr)
            raise UsageError("the answers ended before the questions", "drumline init --yes asks nothing")
        try:
            return parse(line.strip() or default)
        except ValueError as error:
            print(f"  {error}", file=sys.stderr)


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:9]) > 0 and len(text) < 9):
        raise ValueError(f"{text!r} is not a number of 1 or more")
    return int(text)


# the file


def _make_file(answers: JobAnswers, facts: FolderFacts) -> str:
    from drumline.cli.guide import schema

    stored = schema.store_schema("job")
    ignore = "" if facts.has_ignore_file else "  # List what it does not need in .amlignore."
    compute = "# compute: azureml:NAME runs it elsewhere; drumline compute list shows the names."
    if answers.compute:
        compute = f"compute: {_quote('azureml:' + answers.compute.removeprefix('azureml:'))}"
    return f"""\
{schema.make_line(stored) + chr(10) if stored else ""}\
$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
type: command
experiment_name: {_quote(facts.experiment)}

# Every rank runs this command, in a copy of the code. Files that it writes to ./outputs are kept.
command: {_quote(answers.command)}
code: .{ignore}

{_make_nodes(answers)}
{_make_environment(answers, facts)}
{compute}

# Before you submit it, see what it would run: drumline plan -f FILE
"""


def _make_nodes(answers: JobAnswers) -> str:
    text = f"resources:\n  instance_count: {answers.nodes}  # nodes\n"
    if answers.distribution == "none":
        return text + "# distribution: {type: pytorch, process_count_per_instance: 2}\n"
    text += f"distribution:\n  type: {answers.distribution}\n"
    if answers.distribution in ("pytorch", "mpi"):
        return text + f"  process_count_per_instance: {answers.procs}  # ranks on each node\n"
    if answers.distribution == "tensorflow":
        return text + f"  worker_count: {answers.nodes}\n"
    return text


def _make_environment(answers: JobAnswers, facts: FolderFacts) -> str:
    given = answers.environment
    if not given:
        more = (
            f" For {facts.packages}: drumline init --environment {facts.packages}" if facts.packages else ""
        )
        return f"# No environment: the job runs with the Python that submits it.{more}\n"
    if given.startswith("azureml:"):
        return f"environment: {_quote(given)}\n"
    if not os.path.isfile(os.path.join(facts.folder, given)):
        raise UsageError(
            f"--environment: there is no file {given}",
            "azureml:NAME@latest, a conda file or a requirements.txt",
        )
    # Azure needs the image; without a container engine only the packages count.
    head = "environment:\n  image: mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04:latest\n"
    if given.endswith((".yml", ".yaml")):
        return head + f"  conda_file: {_quote(given)}\n"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = f"      - python={version}\n      - pip:\n          - {_quote('-r ' + given)}\n"
    return head + "  conda_file:\n    dependencies:\n" + packages


def _quote(text: str) -> str:
    """Return the text as one line of YAML, quoted where it must be."""
    import yaml

    return (
        str(yaml.safe_dump(text, default_style=None, width=1 << 20, allow_unicode=True))
        .removesuffix("...\n")
        .strip()
    )


def _check(text: str, folder: str) -> None:
    """Check the file as ``job validate`` does. Raises SpecError, which names what of the answers was wrong."""
    import io

    from drumline.spec.jobs.validate import validate
    from drumline.spec.load import load_job

    result = validate(load_job(io.BytesIO(text.encode()), relative_origin=folder))
    if not result.passed:
        raise SpecError(list(result.problems))


# facts of the folder


_SCRIPTS = ("train.py", "main.py", "run.py", "finetune.py", "pretrain.py", "train_ddp.py")
_PACKAGES = ("environment.yml", "environment.yaml", "conda.yml", "conda.yaml", "requirements.txt")
_IGNORE_FILES = (".amlignore", ".gitignore")
_MOST_BYTES = 1 << 20
_MOST_SCRIPTS = 50
_IMPORT = re.compile(
    r"^[ \t]*(?:import|from)[ \t]+([A-Za-z_][\w.]*(?:[ \t]*,[ \t]*[A-Za-z_][\w.]*)*)", re.MULTILINE
)
_MAIN = re.compile(r"^if[ \t]+__name__[ \t]*==", re.MULTILINE)

_DISTRIBUTIONS_BY_IMPORT = {
    "deepspeed": "pytorch",
    "lightning": "pytorch",
    "pytorch_lightning": "pytorch",
    "accelerate": "pytorch",
    "transformers": "pytorch",
    "horovod": "mpi",
    "mpi4py": "mpi",
    "ray": "ray",
    "tensorflow": "tensorflow",
    "keras": "tensorflow",
    "torch": "pytorch",
    "jax": "pytorch",
}
"""By the module that a script imports; the first that it imports decides."""


class FolderFacts(NamedTuple):
    folder: str
    command: str
    distribution: str
    """``none`` where no script imports a framework."""

    packages: str
    """The file that lists its packages; empty for none."""

    experiment: str
    has_ignore_file: bool


def look_at(folder: str) -> FolderFacts:
    """Look at a folder. Unreadable files count as empty; nothing is imported or run."""
    script = _find_script(folder)
    text = _read_text(os.path.join(folder, script)) if script else ""
    imports = {name.strip().partition(".")[0] for line in _IMPORT.findall(text) for name in line.split(",")}
    distribution = next((kind for name, kind in _DISTRIBUTIONS_BY_IMPORT.items() if name in imports), "none")
    names = {one for one in (*_PACKAGES, *_IGNORE_FILES) if os.path.isfile(os.path.join(folder, one))}
    return FolderFacts(
        folder=folder,
        command=f"python {shlex.quote(script or 'train.py')}",
        distribution=distribution,
        packages=next((one for one in _PACKAGES if one in names), ""),
        experiment=default_experiment_name(folder),
        has_ignore_file=any(one in names for one in _IGNORE_FILES),
    )


def _find_script(folder: str) -> str:
    """Return the program of a folder: a usual name, else the only script, or the only one with a main part."""
    try:
        scripts = sorted(name for name in os.listdir(folder) if name.endswith(".py"))[:_MOST_SCRIPTS]
    except OSError:
        return ""
    usual = next((name for name in _SCRIPTS if name in scripts), "")
    if usual or len(scripts) == 1:
        return usual or scripts[0]
    programs = [name for name in scripts if _MAIN.search(_read_text(os.path.join(folder, name)))]
    return programs[0] if len(programs) == 1 else ""


def _read_text(path: str) -> str:
    if not os.path.isfile(path):  # A pipe would block.
        return ""
    try:
        with open(path, "rb") as file:
            return file.read(_MOST_BYTES).decode(errors="replace")
    except OSError:
        return ""
