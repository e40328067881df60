"""Steps of training loops: what the hook writes into its ring, and what the agent makes of it."""

import json
import os
import runpy
import subprocess
import sys
import textwrap
import threading
import types
from typing import Any

import pytest

from drumline.contract import steps as contract
from drumline.contract.folder import RunFolder
from drumline.node import hook_folder
from drumline.node.diagnostics.activity import ActivityReader
from drumline.node.metrics import step_windows
from drumline.node.metrics.step_windows import StepRing, StepWindows

HOOK = os.path.join(hook_folder.HOOK, "steps.py")
COLLECTIVES = os.path.join(hook_folder.HOOK, "collectives.py")


@pytest.fixture
def ring(tmp_path):
    """The path of a rank's ring, in a folder that the hook makes."""
    return str(tmp_path / "rings" / "0")


@pytest.fixture
def ours():
    return runpy.run_path(HOOK)


class Logger:
    """As that of DistributedDataParallel: what it says of a step is known when the next one is done."""

    def __init__(self):
        self.logged = 0

    def _get_ddp_logging_data(self):
        self.logged += 1
        number = self.logged - 1
        ints = {
            "iteration": number,
            "backward_comm_time": 4_000_000 + number,
            "backward_compute_comm_overlap_time": 1_000_000,
            "backward_comm_time_start": (1_700_000_000 + number) * 10**9 if number else 0,
        }
        return types.SimpleNamespace(ints_map=ints, strs_map={"rebuilt_bucket_sizes": "4096, 512"})


class Ddp:
    def __init__(self):
        self.logger = Logger()

    def parameters(self):
        return [types.SimpleNamespace(device=types.SimpleNamespace(type="cpu"))]

    def _set_ddp_runtime_logging_sample_rate(self, rate):
        self.rate = rate


class Optimizer:
    """As PyTorch's: it can be referred to weakly."""

    def __init__(self, *parameters):
        self.param_groups = [{"params": list(parameters)}]


SGD = Optimizer()


def make_steps(steps, count, optimizer=SGD):
    for _ in range(count):
        # Slow enough that each step asks the logger.
        steps._step_end -= 0.02
        steps.note_step(optimizer)


def read_windows(path):
    with open(path, "rb") as file:
        return [window for line in file for window in contract.from_line(line)]


def test_both_sides_agree_on_the_ring(ours):
    assert ours["MAGIC"] == step_windows._MAGIC
    assert ours["HEADER"] == step_windows._HEAD.format
    assert ours["RECORD"] == step_windows._RECORD.format
    assert ours["RECORD_BYTES"] == step_windows._RECORD.size
    assert (ours["HEADER_BYTES"], ours["CAPACITY"]) == (step_windows._HEADER_BYTES, step_windows._CAPACITY)
    assert (ours["CALL_SLOT"], ours["CALL_SLOT_BYTES"]) == (
        step_windows._CALL_SLOT.format,
        step_windows._CALL_SLOT.size,
    )
    assert ours["CALLS_MOST"] == contract.MOST_CALLS
    places = ("BUCKETS_AT", "TOTAL_AT", "SOURCE_AT", "PASS_AT", "CALLS_AT", "CALL_SLOTS")
    assert [ours[name] for name in places] == [getattr(step_windows, f"_{name}") for name in places]


def test_a_ring_is_private_and_bounded_and_keeps_the_newest(ours, ring):
    steps = ours["Steps"](ring)
    reader = StepRing(ring)
    assert reader.read() == []
    make_steps(steps, 3)
    assert [step.number for step in reader.read()] == [1, 2, 3]
    assert reader.read() == []
    assert os.stat(ring).st_mode & 0o777 == 0o600
    make_steps(steps, ours["CAPACITY"] + 10)
    found = reader.read()
    assert len(found) == ours["CAPACITY"]
    assert found[-1].number == ours["CAPACITY"] + 13
    assert os.stat(ring).st_size < 1 << 20


def test_backward_within_backward_and_in_other_threads_counts_once(ours, ring):
    steps = ours["Steps"](ring)
    now = [0.0]
    steps.note_step.__globals__["perf_counter"] = lambda: now[0]
    steps._step_end = steps._mark = 0.0
    make_steps(steps, 1)
    thread = steps._ring.thread
    assert steps.begin_backward(thread + 1) is None
    now[0] = 1.0
    began = steps.begin_backward(thread)
    now[0] = 3.0
    # As checkpointing does, to compute a part of forward again.
    inner = steps.begin_backward(thread)
    assert inner is None
    now[0] = 4.0
    steps.end_backward(inner)
    now[0] = 6.0
    steps.end_backward(began)
    now[0] = 7.0
    assert steps.begin_backward(thread) == 7.0
    make_steps(steps, 1)
    newest = StepRing(ring).read()[-1]
    assert (newest.forward, newest.backward) == (2.0, 5.0)


def test_a_step_that_a_thread_of_backward_makes_is_of_the_loop_that_calls_it(ours, ring):
    steps = ours["Steps"](ring)
    for _ in range(2):
        began = steps.begin_backward(threading.get_ident())
        # As on a GPU, with an optimizer in backward.
        thread = threading.Thread(target=make_steps, args=(steps, 1))
        thread.start()
        thread.join()
        steps.end_backward(began)
    assert StepRing(ring).read()[-1].forward > 0.0


def test_the_first_step_counts_and_its_time_is_not_known(ours, ring, tmp_path):
    steps = ours["Steps"](ring)
    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    windows = StepWindows(path, os.path.dirname(ring), [0], clock=iter(range(100)).__next__)
    steps.note_input(0.0, 0)
    # All the time since the import of PyTorch.
    steps._step_end -= 300.0
    make_steps(steps, 2)
    windows.look()
    make_steps(steps, 10)
    windows.close()
    first, second = read_windows(path)[:2]
    assert (first.done, first.made, first.seconds) == (2, 1, {})
    assert set(second.seconds) == {"step", "input", "forward", "backward", "other"}
    assert all(spread.high < 1.0 for spread in second.seconds.values())
    assert sum(window.made for window in read_windows(path)) == 12


def test_windows_have_the_parts_of_a_step_and_its_own_all_reduce(ours, ring, tmp_path):
    steps, module = ours["Steps"](ring), Ddp()
    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    windows = StepWindows(path, os.path.dirname(ring), [0])
    windows.look(last=False)
    steps.note_ddp(module)
    assert module.rate == 1
    now = [0.0]
    steps.note_step.__globals__["perf_counter"] = lambda: now[0]
    steps._step_end = steps._mark = 0.0

    def pass_time(seconds):
        now[0] += seconds
        return now[0] - seconds

    for _ in range(4):
        steps.note_input(pass_time(0.03), steps._ring.thread)
        pass_time(0.02)
        began = steps.begin_backward(steps._ring.thread)
        pass_time(0.04)
        steps.end_backward(began)
        pass_time(0.01)
        steps.note_step(SGD)
    windows.close()
    [window] = read_windows(path)
    assert (window.rank, window.done, window.made, window.pid) == (0, 4, 4, os.getpid())
    medians = {name: spread.median for name, spread in window.seconds.items()}
    assert medians == pytest.approx(
        {
            "step": 0.1,
            "input": 0.03,
            "forward": 0.02,
            "backward": 0.037,
            "comm": 0.004,
            "overlap": 0.001,
            "other": 0.01,
        },
        abs=1e-5,
    )
    # The logger's figures of the first three came with the step after each.
    assert window.entries == tuple((number, 1_700_000_000.0 + number) for number in (1, 2, 3))
    assert (window.bucket_bytes, window.sources) == ((4096, 512), ("optimizer", "ddp"))
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_the_parts_of_the_first_step_are_kept_as_not_known(ours, ring, tmp_path, monkeypatch):
    monkeypatch.setenv("DRUMLINE_STEPS_DETAIL", "1")
    make_steps(ours["Steps"](ring), 3)
    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    StepWindows(path, os.path.dirname(ring), [0]).close()
    [window] = read_windows(path)
    for phase in ("step", "input", "forward", "backward", "other"):
        assert [one is None for one in window.every[phase]] == [True, False, False]


def test_a_logger_that_notes_few_iterations_says_nothing_of_the_others(ours, ring, tmp_path, monkeypatch):
    monkeypatch.setenv("DRUMLINE_STEPS_DETAIL", "1")
    steps, module = ours["Steps"](ring), Ddp()
    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    windows = StepWindows(path, os.path.dirname(ring), [0], clock=iter(range(100)).__next__)
    steps.note_ddp(module)
    for number in range(1, 41):
        # As PyTorch does on a GPU: each of the first iterations, and then one of many.
        if number in (4, 21, 31):
            module.logger._get_ddp_logging_data()
        noted = module.logger.logged
        began = steps.begin_backward(0) if number == 1 else steps.begin_backward(steps._ring.thread)
        steps.end_backward(began)
        steps._backward_s = 0.01
        make_steps(steps, 1)
        module.logger.logged = noted
        if number in (25, 30):
            windows.look()
    windows.close()
    told = read_windows(path)
    known = [one for window in told for one in window.every["comm"] if one is not None]
    assert len(known) == 3
    assert [number for window in told for number, _ in window.entries] == [1, 2, 3]
    # The other windows have it as it was last, and backward is without it in all of them.
    for window in told:
        assert window.seconds["comm"].median == pytest.approx(0.004, abs=1e-5)
        assert window.seconds["backward"].median == pytest.approx(0.007, abs=1e-5)
        assert window.sources == ("optimizer", "ddp")


def test_each_step_is_kept_where_that_is_asked_for(ours, ring, tmp_path, monkeypatch):
    monkeypatch.setenv("DRUMLINE_STEPS_DETAIL", "1")
    steps = ours["Steps"](ring)
    steps.note_ddp(module := Ddp())
    path = RunFolder(str(tmp_path)).steps_path(2, 5)
    windows = StepWindows(path, os.path.dirname(ring), [0], clock=iter(range(100)).__next__)
    for count in (2, 1, 3000):
        make_steps(steps, count)
        windows.look()
    windows.close()
    del module
    found = read_windows(path)
    assert [window.done for window in found] == [2, 3, 3003, 3003]
    assert [len(window.every.get("step", ())) for window in found] == [1, 1, 1998, 0]
    assert [round(one * 1e9) % 100 for one in found[0].every["comm"]] == [0]
    assert found[-1].entries == ()


def test_only_one_process_of_a_rank_writes_and_its_next_program_goes_on(ours, ring, tmp_path):
    program = textwrap.dedent(f"""
        import runpy, sys
        steps = runpy.run_path({HOOK!r})["Steps"]({ring!r})
        optimizer = type("Optimizer", (), {{}})()
        for _ in range(int(sys.argv[1])):
            steps.note_step(optimizer)
        print(steps.is_on)
    """)

    def run(count):
        command = [sys.executable, "-c", program, str(count)]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()

    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    windows = StepWindows(path, os.path.dirname(ring), [0], clock=iter(range(100)).__next__)
    assert run(3) == "True"
    windows.look()
    steps = ours["Steps"](ring)
    make_steps(steps, 4)
    assert run(9) == "False"
    windows.close()
    assert [(window.done, window.made) for window in read_windows(path)][-1][0] == 7
    assert sum(window.made for window in read_windows(path)) == 7


def test_the_total_of_a_ranks_next_program_is_after_the_steps_of_the_first(ours, ring, tmp_path):
    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    windows = StepWindows(path, os.path.dirname(ring), [0], clock=iter(range(100)).__next__)
    for count, total in ((10, 10), (3, 500)):
        steps = ours["Steps"](ring)
        make_steps(steps, count)
        steps._ring.put_total(total, 0, "a test")
        steps.forget()
        windows.look()
    windows.close()
    last = read_windows(path)[-1]
    assert (last.done, last.total.steps) == (13, 510)


def test_a_program_that_takes_the_place_of_another_in_its_process_is_the_next_one(ours, ring, tmp_path):
    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    windows = StepWindows(path, os.path.dirname(ring), [0], clock=iter(range(100)).__next__)
    for count in (10, 12):
        # As after exec, which closes the ring.
        steps = ours["Steps"](ring)
        make_steps(steps, count)
        os.close(steps._ring._file)
        windows.look()
    windows.close()
    told = read_windows(path)
    assert (told[-1].done, sum(window.made for window in told)) == (22, 22)


def test_a_fork_does_not_write(ours, ring):
    steps = ours["Steps"](ring)
    make_steps(steps, 1)
    os.register_at_fork(after_in_child=steps.forget)
    child = os.fork()
    if child == 0:
        make_steps(steps, 5)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(StepRing(ring).read()) == 1


def test_the_wait_for_the_end_of_the_data_is_input(ours, ring, monkeypatch):
    now, batches = [0.0], [5]

    class Batches:
        def __next__(self):
            now[0] += 1.0
            if not batches:
                raise StopIteration
            return batches.pop()

    given = []
    finder = Finder()
    monkeypatch.setattr(finder, "note_batch", lambda batches, number: given.append(batches))
    loader = types.SimpleNamespace(_BaseDataLoaderIter=Batches)
    monkeypatch.setitem(sys.modules, "torch.utils.data.dataloader", loader)
    steps = ours["Steps"](ring, finder)
    steps.note_step.__globals__["perf_counter"] = lambda: now[0]
    counts = [0, 0, 0, 0]
    ours["_time_input"](steps, lambda: False, counts)
    make_steps(steps, 1)
    iterator: Any = Batches()
    assert next(iterator) == 5
    with pytest.raises(StopIteration):
        next(iterator)
    make_steps(steps, 1)
    assert StepRing(ring).read()[-1].input == 2.0
    assert given == [iterator]
    assert counts == [0, 0, 1, 0]


def test_of_several_optimizers_the_first_is_counted_until_it_is_left(ours, ring):
    steps, generator, discriminator, another = ours["Steps"](ring), Optimizer(1), Optimizer(2), Optimizer(3)
    for _ in range(5):
        make_steps(steps, 1, generator)
        make_steps(steps, 2, discriminator)
    assert len(StepRing(ring).read()) == 5
    make_steps(steps, 60, another)
    assert 5 + 10 < len(StepRing(ring).read()) < 5 + 60


def test_an_optimizer_for_each_parameter_counts_once_a_step(ours, ring):
    steps, optimizers = ours["Steps"](ring), [Optimizer(number) for number in range(120)]
    for _ in range(20):
        for one in optimizers:
            make_steps(steps, 1, one)
    assert len(StepRing(ring).read()) == 20


def test_a_new_optimizer_in_the_place_of_another_is_counted_at_once(ours, ring):
    steps = ours["Steps"](ring)
    for _ in range(4):
        make_steps(steps, 40, Optimizer(1))
    assert len(StepRing(ring).read()) == 160
    # The one before is kept, but another one trains what that did.
    kept = [Optimizer("weights") for _ in range(3)]
    for one in kept:
        make_steps(steps, 40, one)
    assert len(StepRing(ring).read()) == 160 + 40 + 2 * 39


def test_an_optimizer_that_wraps_another_of_the_same_parameters_counts_once(ours, ring):
    steps, inner, outer = ours["Steps"](ring), Optimizer("weights"), Optimizer("weights")
    for _ in range(60):
        make_steps(steps, 1, inner)
        make_steps(steps, 1, outer)
    assert len(StepRing(ring).read()) == 60


class Finder:
    """As that of ``step_total.py``; an engine calls its optimizer twice in a step."""

    def __init__(self):
        self.calls = 0
        self.pass_steps = 7

    def find(self, number):
        return (20, 3, "a test") if number == 4 else None

    def find_engine_step(self):
        self.calls += 1
        return 1, (self.calls - 1) // 2

    def note_batch(self, batches, number):
        return batches == "the first" and number > 0

    def note_step(self):
        pass


def test_what_the_program_says_of_its_steps_is_passed_on(ours, ring, tmp_path, monkeypatch):
    steps = ours["Steps"](ring, Finder())
    steps.note_input(0.0, 0, "the first")
    make_steps(steps, 5)
    steps.note_input(0.0, steps._ring.thread, "the first")
    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    windows = StepWindows(path, os.path.dirname(ring), [0])
    windows.close()
    [window] = read_windows(path)
    assert (window.total, window.pass_steps) == (contract.Total(20, 3, "a test"), 7)

    monkeypatch.setitem(sys.modules, "deepspeed", types.ModuleType("deepspeed"))
    make_steps(steps, 6)
    assert steps._ring.number == 5 + 3


def test_a_finder_that_fails_costs_what_it_knows_and_nothing_else(ours, ring):
    steps = ours["Steps"](ring, object())
    steps.note_input(0.0, 0, "the first")
    make_steps(steps, 5)
    assert len(StepRing(ring).read()) == 5


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"DLSTEPS2" + b"\xff" * 9000])
def test_whatever_a_job_writes_there_costs_nothing_but_steps(ring, tmp_path, content, capsys):
    os.mkdir(os.path.dirname(ring))
    with open(ring, "wb") as file:
        file.write(content)
    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    windows = StepWindows(path, os.path.dirname(ring), [0])
    windows.close()
    assert not os.path.exists(path)
    assert capsys.readouterr().err == ""


def test_a_pipe_in_the_place_of_a_ring_is_said_once(ring, tmp_path, capsys):
    os.mkdir(os.path.dirname(ring))
    os.mkfifo(ring)
    windows = StepWindows(RunFolder(str(tmp_path)).steps_path(0, 0), os.path.dirname(ring), [0])
    windows.look(last=True)
    windows.close()
    assert capsys.readouterr().err.count("steps: ") == 1


def test_a_folder_that_cannot_be_written_ends_the_following_alone(ours, tmp_path):
    (tmp_path / "file").touch()
    steps = ours["Steps"](str(tmp_path / "file" / "0"))
    with pytest.raises(OSError, match="directory"):
        steps.note_step(SGD)


def test_a_line_that_is_not_whole_is_left_out():
    window = contract.Window(
        5.0,
        2.0,
        3,
        44,
        9,
        2,
        {"step": contract.Spread(1.0, 0.5, 2.0)},
        total=contract.Total(10, 1, "x"),
        pass_steps=5,
        calls=(contract.StepCalls(8, (1.5, 1.75)),),
    )
    line = contract.to_line([window])
    assert contract.from_line(line) == (window,)
    assert contract.from_line(line[:-20]) == ()
    data: dict[str, Any] = json.loads(line)
    for name, value in (
        ("k", -1),
        ("d", "x"),
        ("step", [1, 2]),
        ("step", [1, 2, float("inf")]),
        ("at", 5),
        ("calls", [[1]]),
    ):
        data = json.loads(line)
        data["ranks"][0][name] = value
        assert contract.from_line(json.dumps(data).encode()) == ()


def test_steps_that_are_short_seldom_ask_the_logger(ours, ring):
    steps, module = ours["Steps"](ring), Ddp()
    steps.note_ddp(module)
    steps._ring.open()
    # The stride is a power of two, the same on all ranks.
    for _ in range(64):
        steps._logger.ask(0.01, steps._ring)
        steps._ring.number += 1
    assert module.logger.logged == 16


class Group:
    """As PyTorch's class of process groups."""

    def __init__(self, ranks=2):
        self.ranks = ranks

    def size(self):
        return self.ranks

    def allreduce(self, tensors, *, works=True):
        """Reduce."""
        if not works:
            raise RuntimeError("a peer is gone")
        return tensors

    def barrier(self):
        return None

    def broadcast(self):
        return None


@pytest.fixture
def collectives(monkeypatch):
    """The names of the hook's file, in a job of two ranks."""
    monkeypatch.setitem(sys.modules, "torch.distributed", types.SimpleNamespace(get_world_size=lambda: 2))
    return runpy.run_path(COLLECTIVES)


def test_collectives_of_all_ranks_are_noted_and_do_what_they_did(collectives):
    noted = collectives["Collectives"]()
    is_on = [True]
    kind: Any = type("ProcessGroup", (Group,), {"allreduce": Group.allreduce})
    collectives["put_into"](kind, noted, lambda: is_on[0], lambda: False)
    assert kind().allreduce([5]) == [5]
    with pytest.raises(RuntimeError, match="a peer is gone"):
        kind().allreduce([5], works=False)
    assert kind.allreduce.__doc__ == "Reduce."
    kind().barrier()
    assert len(noted.take(10)) == 3
    kind(1).allreduce([])
    kind().broadcast()
    is_on[0] = False
    kind().allreduce([])
    assert noted.take(10) == []


def test_counts_of_collectives_can_be_read_by_whoever_looks_and_are_shared_with_forks(collectives):
    moved = []
    noted = collectives["Collectives"](
        collectives["make_counts"](lambda memory: moved.append(memory) or memory)
    )
    noted.note(Group(), lambda: False)
    noted.note(Group(1), lambda: False)
    noted.note_other(Group(), lambda: False)
    child = os.fork()
    if not child:
        noted.note(Group(), lambda: False)
        os._exit(0)
    os.waitpid(child, 0)
    assert noted.take(10) == []
    try:
        found = ActivityReader().read({7: os.getpid()}, {7: 0})[7]
        assert (found.collectives, found.counted) == (2, 4)
    finally:
        os.close(moved[0])


def test_of_many_collectives_of_a_step_every_second_or_third_is_kept(collectives):
    noted = collectives["Collectives"]()
    for count, kept in ((32, 32), (33, 17), (96, 32), (97, 25)):
        for _ in range(count):
            noted.note(Group(), lambda: True)
        assert len(noted.take(32)) == kept


def test_windows_say_when_collectives_of_some_steps_began(ours, collectives, ring, tmp_path):
    noted = collectives["Collectives"]()
    now = [1_700_000_000.0]
    noted.note.__globals__["time"] = lambda: now[0]
    steps = ours["Steps"](ring, None, noted)
    path = RunFolder(str(tmp_path)).steps_path(0, 0)
    windows = StepWindows(path, os.path.dirname(ring), [0], clock=iter(range(100)).__next__)
    for first in (1, 81):
        for number in range(first, first + 80):
            now[0] = 1_700_000_000.0 + number
            noted.note(Group(), lambda: True)
            now[0] += 0.125
            noted.note(Group(), lambda: True)
            make_steps(steps, 1)
        windows.look()
    windows.close()
    found = [one for window in read_windows(path) for one in window.calls]
    # A step takes 20 ms: those that are multiples of 16 are written, and few of them told.
    assert [one.number for one in found] == [32, 64, 128]
    for one in found:
        assert one.times == (1_700_000_000.0 + one.number, 1_700_000_000.125 + one.number)
    assert read_windows(path)[0].sources == ("optimizer", "collectives")
    assert steps.wants_collectives()
    steps.note_ddp(module := Ddp())
    assert not steps.wants_collectives()
    del module


def test_collectives_count_again_once_a_module_is_gone(ours, ring):
    steps, module = ours["Steps"](ring), Ddp()
    steps.note_ddp(module)
    assert not steps.wants_collectives()
    del module
    assert steps.wants_collectives()


def test_collectives_before_the_first_step_are_not_of_it(ours, collectives, ring):
    noted = collectives["Collectives"]()
    steps = ours["Steps"](ring, None, noted)
    reader = StepRing(ring)
    for _ in range(2):
        noted.note(Group(), lambda: True)
        steps._step_end -= 300.0
        make_steps(steps, 1)
    reader.read()
    assert [one.number for one in reader.read_calls()] == [2]


def test_a_torn_slot_of_collectives_is_left_out(ours, collectives, ring):
    noted = collectives["Collectives"]()
    steps = ours["Steps"](ring, None, noted)
    reader = StepRing(ring)
    make_steps(steps, 1)
    reader.read()
    assert reader.read_calls() == []
    steps._ring.put_calls(0, 16, [1e9, 1e9 + 1])
    steps._ring.put_calls(1, 32, [float("nan")])
    steps._ring.put_calls(2, 48, [1e9])
    steps._ring.put(b"\xff" * 8, ours["CALLS_AT"] + 2 * ours["CALL_SLOT_BYTES"] + 8)
    steps._ring.put_calls(3, 64, [1e9])
    steps._ring.put(b"\x05", ours["CALLS_AT"] + 3 * ours["CALL_SLOT_BYTES"])
    assert reader.read_calls() == [contract.StepCalls(16, (1e9, 1e9 + 1))]
