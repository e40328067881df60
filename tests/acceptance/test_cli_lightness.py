"""What the command line imports: each module costs every call its milliseconds, so a new one is a decision."""

import re
import subprocess
import sys

import pytest
from cli_jobs import one_rank, wait_for_status, write_job

HELP = {
    "drumline",
    "drumline.cli",
    "drumline.cli.main",
}
CREATE = HELP | {
    "drumline.cli.arguments",
    "drumline.cli.jobs",
    "drumline.cli.jobs.create",
    "drumline.cli.jobs.job",
    "drumline.cli.jobs.standby",
    "drumline.cli.output",
    "drumline.contract",
    "drumline.contract.errors",
    "drumline.contract.events",
    "drumline.contract.folder",
    "drumline.contract.hiding",  # what the description shows
    "drumline.contract.process_identity",
    "drumline.contract.mlflow_variables",
    "drumline.contract.outcome",
    "drumline.contract.ownership",  # for root alone
    "drumline.contract.plan",
    "drumline.contract.record",
    "drumline.contract.samples",
    "drumline.contract.status",
    "drumline.contract.words",
    "drumline.control",
    "drumline.control.facts",
    "drumline.control.facts.description",
    "drumline.control.facts.doubts",
    "drumline.control.jobs",
    "drumline.control.jobs.lookup",
    "drumline.control.jobs.job_outcome",
    "drumline.control.jobs.recovery",
    "drumline.control.facts.metrics",
    "drumline.control.facts.usage",
    "drumline.control.settings",
    "drumline.control.settings.tracking",
    "drumline.control.submission",
    "drumline.control.submission.planning",
    "drumline.control.submission.run_folder",
    "drumline.control.submission.submit",
    "drumline.control.terminal",
    "drumline.control.times",
    "drumline.engines",
    "drumline.engines.local",
    "drumline.engines.local.engine",
    "drumline.engines.local.resources",
    "drumline.engines.engine_table",
    "drumline.store",
    "drumline.store.index",
    "drumline.tracking",
    "drumline.tracking.runs",
    "drumline.tracking.mlflow_files",
    "drumline.tracking.metrics",
}
CREATE_PACKAGES = ("drumline.control.lint", "drumline.plan", "drumline.spec")
"""What reads, checks and plans a job, file by file as they are."""

NEVER = {
    "asyncio", "cProfile", "concurrent", "ctypes", "dataclasses", "distutils", "email", "http", "importlib.metadata",
    "inspect", "logging", "mlflow", "multiprocessing", "numpy", "pdb", "pkg_resources", "setuptools", "socket", "ssl",
    "tkinter", "torch", "unittest", "xml", "anyio", "drumline.studio", "starlette", "uvicorn",
}  # fmt: skip
if sys.version_info >= (3, 14):
    # argparse imports them for its colours, whether it shows any or not.
    NEVER -= {"dataclasses", "inspect"}
THIRD_PARTY = {"yaml", "pathspec", "jmespath", "tqdm"}


RECORDER = """
import sys
before = set(sys.modules)
sys.argv = ["drumline", *sys.argv[2:]]
from drumline.cli.main import main
code = main()
with open({record!r}, "w") as file:
    file.write("\\n".join(sorted(set(sys.modules) - before)))
sys.exit(code)
"""


def imported(*arguments, cwd):
    """Every module that the command imported itself; those of the supervisor that it forks are not its own."""
    record = cwd / "modules"
    run("-c", RECORDER.format(record=str(record)), "--", *arguments, cwd=cwd)
    return set(record.read_text().split())


def modules_timed(*argv, cwd):
    """Every module that the interpreter says it imported."""
    done = run("-X", "importtime", *argv, cwd=cwd)
    return set(re.findall(r"^import time:.*\|\s+([\w.]+)$", done.stderr, flags=re.MULTILINE))


def run(*argv, cwd):
    argv = [sys.executable, *argv]
    done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def roots(modules):
    return {module.partition(".")[0] for module in modules}


def unwanted(modules):
    return {
        module for module in modules if any(module == bad or module.startswith(bad + ".") for bad in NEVER)
    }


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_imports_nothing_but_its_own_module(tmp_path, arguments):
    # Python itself imports contextlib up to 3.13.
    bare = modules_timed("-c", "import contextlib, runpy", cwd=tmp_path)
    modules = modules_timed("-m", "drumline", *arguments, cwd=tmp_path) - bare
    assert HELP | {"__future__"} == modules


def test_create_imports_what_it_needs_and_no_more(tmp_path):
    job = write_job(tmp_path, "true", **one_rank())
    modules = imported("job", "create", "-f", str(job), "-n", "job", "-o", "none", cwd=tmp_path)
    ours = {module for module in modules if module.startswith("drumline")}
    assert {module for module in ours - CREATE if not module.startswith(CREATE_PACKAGES)} == set()
    assert roots(modules) & THIRD_PARTY == {"yaml"}
    assert unwanted(modules) == set()
    assert "drumline.supervisor" not in ours
    wait_for_status("job", "Completed")


def test_run_imports_no_third_party_but_yaml_for_the_record(tmp_path):
    modules = imported("run", "--name", "job", "--", "true", cwd=tmp_path)
    assert roots(modules) & THIRD_PARTY <= {"yaml"}
    assert unwanted(modules) == set()


@pytest.mark.parametrize(
    ("arguments", "database", "third_party"),
    [
        (["job", "list"], True, {"yaml"}),
        (["job", "show", "job"], False, {"yaml"}),
        (["job", "show", "job", "--query", "name"], False, {"yaml", "jmespath"}),
        (["job", "cancel", "job"], False, set()),
        (["job", "stream", "job"], False, set()),
        (["job", "download", "job"], False, set()),
        (["job", "validate", "-f", "job.yml"], False, {"yaml"}),
        (["plan", "-f", "job.yml"], False, {"yaml"}),
    ],
)
def test_each_verb_imports_only_what_it_uses(cli, tmp_path, arguments, database, third_party):
    write_job(tmp_path, "true", **one_rank())
    cli("job", "create", "-f", "job.yml", "-n", "job", "--stream")
    modules = imported(*arguments, cwd=tmp_path)
    assert ("sqlite3" in modules) == database
    assert roots(modules) & THIRD_PARTY == third_party
    assert unwanted(modules) <= ({"inspect"} if "jmespath" in third_party else set())


@pytest.mark.parametrize("ignore_file", [None, ".amlignore", ".gitignore"])
def test_patterns_are_imported_only_with_an_ignore_file(tmp_path, ignore_file):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "x").write_text("")
    if ignore_file:
        (tmp_path / "src" / ignore_file).write_text("*.log\n")
    job = write_job(tmp_path, "true", code="src", **one_rank())
    modules = imported("job", "create", "-f", str(job), "-n", "job", "-o", "none", cwd=tmp_path)
    assert ("pathspec" in roots(modules)) == bool(ignore_file)
    wait_for_status("job", "Completed")


def test_the_package_alone_imports_no_part_of_itself(tmp_path):
    modules = modules_timed("-c", "import drumline", cwd=tmp_path)
    assert {module for module in modules if module.startswith("drumline")} == {"drumline"}
