"""A program cannot tell how it was started: cold and warm it sees the same, says the same, and ends the same way."""

import os
import re
import shlex
import shutil
import venv
from pathlib import Path

import pytest
from cli_jobs import write_job
from needs import need_torch
from probing import MORE, May, any_value, differences, read

PROGRAMS = Path(__file__).parent.parent / "jobs" / "warm"

PF_FORKNOEXEC = 0x40

MAY_DIFFER = {
    "libraries.own.*": May(any_value, "another test looks at what each process has of its own"),
    "interpreter.modules": MORE,
    "interpreter.importer_cache": MORE,
    "interpreter.gc.frozen": May(
        any_value, "what was imported ahead is shared memory, which no collector touches"
    ),
    "process.parent.*": May(any_value, "its parent is the fork server, not the agent"),
    "process.stat.flags": May(
        lambda flags: int(flags) & ~PF_FORKNOEXEC, "the kernel notes that it was forked"
    ),
}
SHARED = {
    "libraries.own.hash": "the seed of strings' hashes is chosen before a program could be told from another",
    "libraries.own.place": "forks have their memory at the same addresses",
}
BEHIND_BASH = {
    name: May(sorted, "bash passes its variables on in an order of its own")
    for name in (*map("process.environment.".__add__, ("order", "proc", "c")), "working.shell.environment")
}


CHATTY = """
import atexit, gc, locale, logging, resource, signal, sys, warnings

print("imported")
print("with a word on errors", file=sys.stderr)
warnings.warn("soon no more", FutureWarning)
atexit.register(print, "a package's last words")
signal.signal(signal.SIGUSR2, lambda *_: None)
sys.path.append("/nowhere")
sys.setrecursionlimit(2000)
gc.disable()
warnings.simplefilter("ignore", RuntimeWarning)
logging.basicConfig(level=logging.DEBUG)
locale.setlocale(locale.LC_ALL, "")
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
ARGUMENTS = sys.argv
"""
LOOKING = """
import os

RANK = os.environ.get("RANK")
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    """The programs in a folder of their own, and no settings of Python's from outside."""
    for name in list(os.environ):
        if name.startswith("PYTHON"):
            monkeypatch.delenv(name)
    folder = Path(shutil.copytree(PROGRAMS, tmp_path / "code", ignore=shutil.ignore_patterns("__pycache__")))
    (folder / "bad.py").write_text("def unfinished(:\n")
    return folder


@pytest.fixture
def create(cli, tmp_path, drumline_home, code):
    """Runs a job's command; ``warm`` says how."""

    def create(name, warm, command, ranks):
        distribution = {"type": "pytorch", "process_count_per_instance": ranks}
        job = write_job(tmp_path, command, name=name, code=str(code), distribution=distribution)
        done = cli("job", "create", "-f", job, "--stream", "--warm", warm)
        assert (drumline_home / "jobs" / name).exists(), done.out + done.err
        return read(drumline_home / "jobs" / name)

    return create


@pytest.fixture
def both(create):
    """Runs it in both ways, and compares."""

    def both(command, ranks):
        cold, warm = create("probe-a", "off", command, ranks), create("probe-b", "on", command, ranks)
        assert_same(cold, warm, {**MAY_DIFFER, **BEHIND_BASH})
        return cold, warm

    return both


def test_what_a_program_sees(cli, drumline_home, code):
    def run(name, warm):
        command = ("python", "probe.py", "a", "b c")
        done = cli(
            "run", "--name", name, "--warm", warm, "--nodes", "2", "--procs", "2", "--", *command, cwd=code
        )
        assert done.rc == 0, done.out + done.err
        return read(drumline_home / "jobs" / name)

    cold, first, second = run("probe-a", "off"), run("probe-b", "on"), run("probe-c", "on")
    assert_warm(first, 2)
    assert_warm(second, 2)
    assert [event["reused"] for event in second.warm] == [True, True]
    assert_same(cold, first, MAY_DIFFER)
    assert_same(cold, second, MAY_DIFFER)
    assert_of_their_own(cold, first, second)


@pytest.mark.parametrize(
    "command",
    [
        'cd sub && GIVEN="$RANK" PYTHONUNBUFFERED= TZ=Asia/Tokyo '
        'python -X dev -W error::UserWarning ../probe.py "$RANK" x',
        "exec env PYTHONHASHSEED=7 PYTHONIOENCODING=latin-1 python -O -m pkg.probe x",
    ],
    ids=["a folder, variables and flags", "env and a module"],
)
def test_what_it_sees_otherwise_started(both, command):
    cold, warm = both(command, 2)
    assert_warm(warm, 1)
    assert all(rank.seen for rank in cold.ranks)


def test_how_it_ends(both):
    cold, warm = both("PYTHONUNBUFFERED= python endings.py", 20)
    assert_warm(warm, 1)
    assert {rank.ended["signal"] for rank in cold.ranks} == {None, 2, 6, 9, 11, 15}
    assert {rank.ended["code"] for rank in cold.ranks} == {None, 0, 1, 3, 4, 5, 120}


@pytest.mark.parametrize("how", ["raise", "kill"])
def test_the_sentence_about_it(both, how):
    cold, warm = both(f"python failing.py {how}", 2)
    assert_warm(warm, 1)
    first, second = (re.sub(r"[\d.]+ s", "SOME s", each.reason) for each in (cold, warm))
    assert first == second
    assert "rank 1 on node 0" in first


@pytest.mark.parametrize("program", ["bad.py", "missing.py", "shadow/main.py"])
def test_a_program_that_cannot_begin(both, program):
    cold, _ = both(f"python {program}", 1)
    assert [rank.ended["code"] for rank in cold.ranks] in ([1], [2])


def test_what_packages_do_when_they_are_imported(both, tmp_path):
    venv.create(tmp_path / "venv", symlinks=True)
    for name, text in (("chatty", CHATTY), ("looking", LOOKING)):
        (next(tmp_path.glob("venv/lib/*/site-packages")) / f"{name}.py").write_text(text)
    python = shlex.quote(str(tmp_path / "venv" / "bin" / "python"))
    _, warm = both(f"{python} packages.py", 2)
    assert_warm(warm, 1)
    assert "chatty" in warm.warm[0]["modules"]
    assert "looking" not in warm.warm[0]["modules"]
    assert [re.findall("of packages: .*", rank.log) for rank in warm.ranks] == [
        [f"of packages: ['packages.py'] {number}"] for number in range(2)
    ]


def test_pytorch_without_a_seed(create):
    need_torch()
    runs = [create(name, "on", "python seeded.py", 2) for name in ("probe-a", "probe-b")]
    for run in runs:
        assert_warm(run, 1)
    said = [rank.log.split() for run in runs for rank in run.ranks]
    assert len({seed for seed, _, _ in said}) == len({number for _, number, _ in said}) == 4, said
    assert {threads for _, _, threads in said} == {"1"}


def assert_same(cold, warm, may):
    found = list(differences(cold, warm, may))
    assert not found, "\n".join(found)


def assert_warm(run, nodes):
    for event in run.warm:
        if "the kernel does not let" in event.get("reason", ""):
            pytest.skip(event["reason"])
    assert [event["type"] for event in run.warm] == ["WarmStart"] * nodes, run.warm


def assert_of_their_own(*runs):
    ranks = [rank.seen for run in runs for rank in run.ranks]
    for name in ranks[0]:
        if name.startswith("libraries.own.") and name not in SHARED:
            found = [seen[name] for seen in ranks]
            assert len(set(found)) == len(found), (name, found)
