"""What the exception that ended a program came of: noted by the hook, and chosen from."""

import os
import re
import subprocess
import types
from typing import Any

import pytest
from needs import need_torch

from drumline.contract.evidence import ExitEvidence
from drumline.node.diagnostics import exhaustion, failures
from drumline.supervisor.explaining import exit_evidence


def links(failure):
    return [(one["type"], one["message"], one["file"], one["line"]) for one in failure.get("chain", [])]


def settled(done):
    return exit_evidence.choose_failure(ExitEvidence(done.failure), 0.0)


IN_FINALLY = """
    def step():
        raise ValueError("bad batch")

    try:
        step()
    finally:
        raise ConnectionResetError(104, "Connection reset by peer")
"""


def test_what_was_being_handled_is_noted_with_its_place(rank):
    failure = rank(IN_FINALLY).failure
    assert failure["type"] == "ConnectionResetError"
    assert links(failure) == [("ValueError", "bad batch", "train.py", 3)]


def test_a_barrier_in_finally_that_was_cut_off_gives_way_to_the_exception_before(rank):
    failure = settled(rank(IN_FINALLY))
    assert (failure["type"], failure["message"], failure["line"]) == ("ValueError", "bad batch", 3)
    assert failure["after"] == "Connection reset by peer"


@pytest.mark.parametrize(
    ("raised", "handled"),
    [
        ("raise KeyError('label')", "raise RuntimeError('step 3 failed') from error"),
        ("raise KeyError('label')", "raise RuntimeError('step 3 failed')"),
        ("raise KeyError('label')", "raise RuntimeError('Connection closed by peer') from None"),
    ],
)
def test_otherwise_the_last_exception_is_the_better_sentence(rank, raised, handled):
    text = f"try:\n    {raised}\nexcept KeyError as error:\n    {handled}\n"
    assert settled(rank(text))["type"] == "RuntimeError"


def test_an_exception_that_is_no_exception_can_be_the_cause(rank):
    done = rank(
        """
        class Stop(BaseException):
            pass

        try:
            raise Stop("enough")
        finally:
            raise ConnectionResetError("peer")
        """
    )
    assert [one["type"] for one in done.failure["chain"]] == ["Stop"]


def test_what_is_no_failure_is_no_cause(rank):
    text = """
        import os, queue, signal

        class Told(Exception):
            pass

        def on_signal(*_):
            raise Told

        signal.signal(signal.SIGTERM, on_signal)
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        except Told:
            try:
                raise queue.Empty
            except queue.Empty:
                next(iter(())) if False else int("x")
    """
    assert links(rank(text).failure) == []


def test_an_exception_inside_a_library_has_the_place_of_the_call(rank):
    text = "import json\ntry:\n    json.loads('{')\nexcept ValueError:\n    raise ConnectionResetError\n"
    assert [link[3] for link in links(rank(text).failure)] == [3]
    inside = """
        import configparser
        configparser.ConfigParser(strict=True).get("a", "b")
    """
    failure = rank(inside).failure
    assert failure["type"] == "configparser.NoSectionError"
    assert all(file == "train.py" for _, _, file, _ in links(failure))


def test_a_circle_and_a_long_chain_come_to_an_end(rank):
    circle = "a, b = ValueError('a'), KeyError('b')\na.__context__, b.__context__ = b, a\nraise a\n"
    assert [link[0] for link in links(rank(circle).failure)] == ["KeyError"]
    long = """
        def fall(depth):
            try:
                raise ValueError(str(depth))
            except ValueError:
                if depth < 60:
                    fall(depth + 1)
                raise
        fall(0)
    """
    failure = rank(long).failure
    assert len(links(failure)) <= 8


LOADER = """
    import os, signal
    from torch.utils.data import DataLoader, Dataset
    import torch

    class Images(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            if index == 20:
                os.kill(os.getpid(), signal.{signal})
            return torch.zeros(3)

    for batch in DataLoader(Images(), batch_size=4, num_workers=2, multiprocessing_context="fork"):
        pass
"""


@pytest.mark.parametrize(("signal", "name"), [("SIGKILL", "Killed"), ("SIGBUS", "Bus error")])
def test_a_loaders_process_that_is_killed_is_named(rank, signal, name):
    need_torch()
    done = rank(LOADER.format(signal=signal))
    done.told = failures.add_killed_worker(done.told, done.out)
    failure = settled(done)
    # PyTorch names no signal where it collects the process before it hears of its end.
    assert re.search(f"signal: {name}|exited unexpectedly", failure["message"]), (done.failure, done.out)
    assert failure["file"] == "train.py"
    assert len(failures.find_killed_workers(failure["message"])) == 1
    assert failures.find_killed_workers("DataLoader worker (pid(s) 1, 2) exited unexpectedly") == [1, 2]


ASKED = """
    import multiprocessing.reduction
    import os, signal
    import torch
    from torch.utils.data import DataLoader

    def be_killed(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    # The loader's process dies when it is asked for the memory of a batch.
    multiprocessing.reduction.send_handle = be_killed
    batches = iter(DataLoader(torch.zeros(8, 3), batch_size=4, num_workers=1, multiprocessing_context="fork"))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    next(batches)
"""


def test_a_loaders_process_that_dies_while_it_is_asked_is_named(rank):
    """The end of its socket is an EOFError without words. PyTorch raises that, or after it that the process is gone."""
    need_torch()
    done = rank(ASKED)
    assert "\nEOFError\n" in done.out, done.out
    failure = settled(done)
    assert "is killed by signal: Killed" in failure["message"], done.failure
    assert failure["file"] == "train.py"


UNHEARD = """
    import os, signal
    from torch.utils.data import DataLoader, Dataset, dataloader

    class Numbers(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, index):
            if index == 20:
                {end}
            return index

    # PyTorch looks at its processes by itself every five seconds.
    dataloader._MultiProcessingDataLoaderIter._try_get_data.__defaults__ = (0.1,)
    batches = iter(DataLoader(Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork", collate_fn=list))
    signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        for batch in batches:
            pass
    except RuntimeError as error:
        {then}
"""


@pytest.mark.parametrize(
    ("end", "then", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGBUS)", "raise", "is killed by signal: Bus error"),
        ("os._exit(3)", "raise ValueError('no batch') from error", "exited unexpectedly with exit code 3"),
    ],
)
def test_a_loaders_process_whose_signal_came_too_late_is_named(rank, end, then, said):
    """As where its end is seen before Python calls PyTorch's handler, which then finds nothing."""
    need_torch()
    done = rank(UNHEARD.format(end=end, then=then))
    assert "exited unexpectedly" in done.out
    assert said not in done.out
    assert said in done.failure["chain"][-1]["message"], done.failure
    failure = settled(done)
    assert said in failure["message"]
    assert failure["file"] == "train.py"


def test_a_handler_that_raises_while_the_failure_is_noted_tells_more(rank):
    """A handler of a signal may be called at the first line of any function."""
    killed = "DataLoader worker (pid 12) is killed by signal: Killed. "
    done = rank(
        f"""
        import sys

        def handle(frame, event, _):
            if event == "call" and frame.f_code.co_name == "_try_to_write":
                raise RuntimeError("{killed}")

        sys.setprofile(handle)
        raise ConnectionResetError(104, "Connection reset by peer")
        """
    )
    assert settled(done)["message"].strip() == killed.strip()


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "ckpt"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("target", ["'ckpt/a.pt'", "open('ckpt/a.pt', 'wb')"])
def test_a_checkpoint_on_a_full_disk(rank, small_disk, target):
    need_torch()
    done = rank(f"import torch\ntorch.save({{'a': torch.zeros(1 << 20)}}, {target})\n")
    assert (
        exhaustion.describe_full_disk([done.failure], "/")
        == f"the disk of {small_disk} has 0 B of 2 MiB free"
    )
    assert "unexpected pos" not in settled(done)["message"]


def test_a_disk_with_room_is_not_full(tmp_path):
    for message in ("[enforce fail at inline_container.cc:672] . unexpected pos 960 vs 854", "bad batch"):
        one: Any = {"message": message}
        assert exhaustion.describe_full_disk([one], str(tmp_path)) == ""


@pytest.mark.parametrize(
    ("message", "free_mb", "size_mb", "text"),
    [
        # A write to a file there does not say so.
        (
            "[Errno 28] No space left on device",
            0,
            64,
            "/dev/shm has 0 B of 64 MiB free; start the container with more: ",
        ),
        ("[Errno 28] No space left on device", 0, 8000, "/dev/shm has 0 B of 7.81 GiB free"),
        ("[Errno 28] No space left on device", 20, 64, ""),
        # Gone with those who had it.
        (
            "unable to write to file </torch_7_1>: No space left on device (28)",
            60,
            64,
            "/dev/shm has 60 MiB of 64 MiB free;",
        ),
        ("[Errno 28] No space left on device: '/dev/shm/x'", 60, 64, "/dev/shm has 60 MiB of 64 MiB free;"),
        ("bad batch of /dev/shm", 0, 64, ""),
    ],
)
def test_full_shared_memory(monkeypatch, message, free_mb, size_mb, text):
    def statvfs(folder):
        free, size = (free_mb, size_mb) if folder == "/dev/shm" else (9000, 9000)
        return types.SimpleNamespace(f_frsize=1 << 20, f_bavail=free, f_blocks=size)

    monkeypatch.setattr(os, "statvfs", statvfs)
    one: Any = {"message": message}
    found = exhaustion.describe_full_disk([one], "/work")
    assert found.startswith(text)
    assert bool(found) == bool(text)
    assert ("--shm-size" in found) == (bool(found) and size_mb == 64)
