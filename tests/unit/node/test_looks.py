"""Looks at the stacks of programs whose steps no hook follows: what they are taken for, and what agents make of it."""

import os
import runpy
import struct
import subprocess
import sys
import textwrap
import timeit

import pytest
from interpreters import oldest_and_this
from waiting import wait_until

from drumline.contract import steps as contract
from drumline.contract.folder import RunFolder
from drumline.node import hook_folder
from drumline.node.metrics import step_windows
from drumline.node.metrics.step_windows import LookCounts, StepWindows

LOOKS = os.path.join(hook_folder.HOOK, "looks.py")

CALLS = """
    import runpy, sys
    looks = runpy.run_path(sys.argv[1])

    class Comm:
        def __getattr__(self, name):
            if name == "COMM_WORLD":
                return self
            return self.call

        def call(self, *_, **__):
            frame = sys._getframe(1)
            calls = looks["find_calls"](frame.f_code, frame.f_lasti, frame.f_lineno)
            print(*[f"{root}.{name}" for name, root in calls])
            return 1

    comm = MPI = Comm()
    comm.Allreduce(1, 2)
    comm.Barrier()
    comm.bcast(comm.load(1, 2 + 3), root=0)
    MPI.COMM_WORLD.allreduce([1, comm.Get_rank()], op=str(comm.op(max(1, 2))))
    send = comm.send
    send(1)

    def run(comm, batch):
        comm.recv(
            source=len(batch),
            status=MPI.Status(),
        )
        return [request.Wait() for request in (comm,)]

    run(comm, [1])
"""

CALLED = (
    "comm.Allreduce comm.Barrier comm.load comm.bcast comm.Get_rank comm.op MPI.allreduce send.send"
    " MPI.Status comm.recv request.Wait"
)


@pytest.mark.parametrize("python", oldest_and_this())
def test_the_call_that_a_frame_is_in_is_read_from_its_source(python, tmp_path):
    (tmp_path / "train.py").write_text(textwrap.dedent(CALLS))
    command = [python, str(tmp_path / "train.py"), LOOKS]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    for told, expected in zip(done.stdout.splitlines(), CALLED.split(), strict=True):
        # Before Python 3.11 all calls of the line.
        assert expected == told or (python != sys.executable and expected in told.split())


PROGRAM = """
    import os, sys, time
    import {module}

    if "tensorflow" in sys.modules:
        from tensorflow.python.data import iterator

    begin = time.monotonic()
    print(os.getpid(), flush=True)
    {work}
"""


@pytest.fixture
def ours():
    return runpy.run_path(LOOKS)


@pytest.fixture
def start(tmp_path):
    """Start a program below the hook, in a folder with packages that have the names of a framework's."""
    data = tmp_path / "tensorflow" / "python" / "data"
    data.mkdir(parents=True)
    for folder in (data, data.parent, data.parent.parent):
        (folder / "__init__.py").touch()
    (data / "iterator.py").write_text("import time\n\ndef next_batch():\n    time.sleep(0.02)\n")
    started = []

    def run(work, module="tensorflow", **variables):
        (tmp_path / "train.py").write_text(textwrap.dedent(PROGRAM.format(module=module, work=work)))
        process = subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": hook_folder.HOOK,
                "DRUMLINE_STEPS": str(tmp_path / "rings" / "0"),
                "PYTHONWARNINGS": "always",
                **variables,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def count(tmp_path):
    found = LookCounts(0, str(tmp_path / "rings" / "0")).read(1.0, 1.0)
    return dict(zip(contract.PLACES, found.counts, strict=True)) if found else {}


def test_both_sides_agree_on_the_file(ours):
    assert (ours["MAGIC"], ours["LAYOUT"]) == (step_windows._COUNTS_MAGIC, step_windows._LAYOUT.format)
    assert [ours[name.upper()] for name in contract.PLACES] == list(range(len(contract.PLACES)))


def test_no_file_of_the_program_is_run_that_it_does_not_import(start, tmp_path):
    for name in ("resource", "opcode"):
        (tmp_path / f"{name}.py").write_text(
            f"open({str(tmp_path / 'run')!r}, 'a').close()\nraise ValueError\n"
        )
    start("while True:\n        sum(range(10000)); time.sleep(0.001)")
    wait_until(lambda: sum(count(tmp_path).values()) >= 3)
    assert not (tmp_path / "run").exists()


def test_an_input_pipeline_is_told_from_computing(start, tmp_path):
    work = "while True:\n        iterator.next_batch(); sum(range(10000))"
    process = start(work)
    wait_until(lambda: count(tmp_path).get("input", 0) >= 3)
    assert os.stat(tmp_path / "rings" / "0.looks").st_mode & 0o777 == 0o600
    found = LookCounts(0, str(tmp_path / "rings" / "0")).read(1.0, 1.0)
    assert found is not None
    assert found.pid == process.pid
    assert (found.counts[1], found.counts[2]) == (0, 0)


def test_a_program_that_runs_up_to_a_call_of_mpi_is_not_taken_for_one_that_waits_there(start, tmp_path):
    """The lock of its Python is free first when it is in that call."""
    work = (
        "comm = type('Comm', (), {'Allreduce': time.sleep})\n"
        "    while True:\n"
        "        end = time.monotonic() + 0.003\n"
        "        while time.monotonic() < end: pass\n"
        "        comm.Allreduce(0.0002)"
    )
    start(work)
    # On a busy machine it really waits there for a while.
    wait_until(lambda: (found := count(tmp_path)) and found["computing"] > max(2, found["communication"] / 4))


def test_nothing_is_looked_at_in_a_program_of_none_of_these_or_where_a_ring_is(start, tmp_path):
    threads = "print(len(os.listdir('/proc/self/task')))"
    for module, variables, expected in (
        ("json", {}, "1"),
        ("tensorflow", {"DRUMLINE_HOOK": "0"}, "1"),
        ("tensorflow", {"DRUMLINE_STEPS": "0"}, "1"),
        ("tensorflow", {}, "2"),
    ):
        program = start(threads, module, **variables)
        assert program.communicate(timeout=60)[0].split()[-1] == expected
    (tmp_path / "rings").mkdir(exist_ok=True)
    (tmp_path / "rings" / "0").touch()
    program = start("while len(os.listdir('/proc/self/task')) > 1: time.sleep(0.01)")
    assert program.wait(timeout=60) == 0


def test_a_fork_meets_no_thread_of_ours(start):
    work = (
        "before = len(os.listdir('/proc/self/task'))\n"
        "    child = os.fork()\n"
        "    if child == 0: os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    print(before, len(os.listdir('/proc/self/task')))"
    )
    said = start(work).communicate(timeout=60)[0].splitlines()
    assert said[1:] == ["2 1"]


WAIT = """
import os, runpy, sys, threading, time
looks = runpy.run_path(sys.argv[1])
find = looks["Finder"]().find

def look(work, expected):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    until, found = time.monotonic() + 20, -1
    while found != looks[expected] and time.monotonic() < until:
        found = find(sys._current_frames().get(thread.ident))
    print(found)

lock = threading.Event()

def sleep_here():
    time.sleep(60)

def wait_here():
    lock.wait(60)

def work_here():
    while True:
        pass

look(sleep_here, "IDLE")
look(wait_here, "IDLE")
look(work_here, "COMPUTING")
"""


def test_waits_are_told_from_computing(ours, tmp_path):
    (tmp_path / "train.py").write_text(WAIT)
    command = [sys.executable, str(tmp_path / "train.py"), LOOKS]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert list(map(int, done.stdout.split())) == [ours["IDLE"], ours["IDLE"], ours["COMPUTING"]]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("comm.Allreduce()", "COMMUNICATION"),
        ("comm.Isend()", "COMMUNICATION"),
        ("request.waitall()", "COMMUNICATION"),
        ("numpy.add.reduce()", "COMPUTING"),
        ("comm.Get_rank()", "COMPUTING"),
        ("time.sleep()", "IDLE"),
    ],
)
def test_a_call_of_mpi_is_known_by_its_name(ours, text, kind, tmp_path):
    import dis

    (tmp_path / "train.py").write_text(text)
    code = compile(text, str(tmp_path / "train.py"), "exec")
    at = [one.offset for one in dis.get_instructions(code) if one.opname == "CALL"][-1]
    names = {"numpy": type(os)("numpy"), "comm": object()}
    assert ours["_find_kind"](code, at, 1, names) == ours[kind]


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("/x/site-packages/tensorflow/python/data/ops/iterator_ops.py", "INPUT"),
        ("/x/site-packages/keras/src/trainers/epoch_iterator.py", "INPUT"),
        ("/x/site-packages/horovod/tensorflow/mpi_ops.py", "COMMUNICATION"),
        ("/x/site-packages/horovod/runner/run_task.py", ""),
        ("/x/site-packages/mpi4py/run.py", ""),
        ("/home/me/examples/horovod/train.py", ""),
        ("/home/me/examples/mpi4py/train.py", ""),
        ("<frozen importlib._bootstrap>", "UNCOUNTED"),
    ],
)
def test_files_of_libraries_stand_for_something_and_those_of_programs_for_nothing(ours, file, kind):
    place = ours["_rank_file"](file)
    assert place == len(ours["_ANYWHERE"]) if not kind else ours["_ANYWHERE"][place][0] == ours[kind]


def test_a_stack_of_40_frames_is_sorted_in_less_than_a_tenth_of_a_millisecond(ours):
    find = ours["Finder"]().find

    def measure(depth):
        if depth:
            return measure(depth - 1)
        frame = sys._getframe()
        return min(timeit.repeat(lambda: find(frame), number=20, repeat=20)) / 20

    assert measure(40) < 0.0001


# what the agent makes of it


def write(path, *counts, magic=b"DLLOOKS1", pid=7):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(struct.pack("<8sQ4Q", magic, pid, *counts))


def test_an_agent_notes_what_came_since_its_last_look(tmp_path):
    file = tmp_path / "rings" / "0.looks"
    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    windows = StepWindows(path, str(tmp_path / "rings"), [0], clock=iter(range(100)).__next__)
    windows.look()
    assert not os.path.exists(path)
    for pid, counts in ((7, (1, 2, 3, 4)), (7, (1, 2, 3, 4)), (7, (1, 3, 3, 9)), (8, (0, 0, 0, 2))):
        write(file, *counts, pid=pid)
        windows.look()
    windows.close()
    with open(path, "rb") as lines:
        found = [look for line in lines for look in contract.read_looks(line)]
    assert [(one.rank, one.pid, one.counts) for one in found] == [
        (0, 7, (1, 2, 3, 4)),
        (0, 7, (0, 1, 0, 5)),
        (0, 8, (0, 0, 0, 2)),
    ]


def test_a_file_that_the_job_has_written_itself_says_nothing(tmp_path):
    file = tmp_path / "rings" / "0.looks"
    for counts, more in (
        ((1 << 63, 0, 0, 0), {}),
        ((0, 0, 0, 1 << 20), {}),
        ((1, 1, 1, 1), {"magic": b"ANOTHER1"}),
        ((1, 1, 1, 1), {"pid": (1 << 64) - 1}),
    ):
        write(file, *counts, **more)
        assert LookCounts(0, str(file)[: -len(".looks")]).read(1.0, 1.0) is None
    file.write_bytes(b"DLLOOKS1")
    assert LookCounts(0, str(file)[: -len(".looks")]).read(1.0, 1.0) is None
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic"):
        LookCounts(0, str(file)[: -len(".looks")]).read(1.0, 1.0)


@pytest.mark.parametrize(
    "looks",
    [
        "[[0,1,2]]",
        "[[0,1,2,3,4,5,6]]",
        "[[0,1,-1,3,4,5]]",
        "[[0,1,99999999,3,4,5]]",
        "[7]",
        "{}",
        "null",
        '"x"',
        "[[]]",
    ],
)
def test_looks_that_are_none_are_left_out(looks):
    line = f'{{"t":1,"m":1,"ranks":[],"looks":{looks}}}'.encode()
    assert contract.read_looks(line) == ()
    assert contract.from_line(line) == ()
