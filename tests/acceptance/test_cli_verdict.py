"""Training scripts that are broken, and the one sentence that each gets. Scripts know nothing of drumline."""

import contextlib
import os
import re
from pathlib import Path

import pytest
from cli_jobs import write_script

from drumline.control.facts import description

GLOO = """
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def step(number):
        {step}
        dist.all_reduce(torch.ones(4))

    for number in range(6):
        step(number)
"""


@pytest.fixture
def verdict(cli, tmp_path):
    """Run a broken script on two nodes of two; its sentence, which ``stream`` and ``show`` agree on, and the fields."""

    def run(script, command="python train.py", cli=cli, **fields):
        path = write_script(tmp_path, script, command, **fields)
        done = cli("job", "create", "-f", path, "--stream")
        assert done.rc == 1, done.out + done.err
        shown = description.show_job("job")
        assert f": {shown['reason']}\n" in done.out
        assert "next: drumline job show -n job\n" in done.out
        return shown["reason"], shown["verdict"]

    return run


def test_an_exception_on_one_rank(verdict):
    said, fields = verdict(
        GLOO.format(step='if number == 3 and rank == 3:\n            raise ValueError("bad batch")')
    )
    assert re.fullmatch(
        r"rank 3 on node 1 failed first, [\d.]+ s in: ValueError: bad batch \(train\.py:10, in step\)"
        r"(; ranks? [0-2, and-]+ (was|were) then cut off \([\w ]+\))?(; ranks? [0-2, and-]+ (was|were) then stopped)?",
        said,
    ), said
    assert sorted(fields["cut_off"] + fields["stopped"]) == [0, 1, 2]
    assert (fields["rank"], fields["node"], fields["exit_code"]) == (3, 1, 1)
    assert (fields["error_type"], fields["file"], fields["line"]) == ("ValueError", "train.py", 10)


@pytest.mark.parametrize(
    "end", ["raise SystemExit(0)", "__import__('os')._exit(0)", "dist.destroy_process_group(), exit()"]
)
def test_a_rank_that_ends_too_early(verdict, end):
    said, fields = verdict(GLOO.format(step=f"if number == 2 and rank == 1:\n            {end}"))
    assert re.match(
        r"rank 1 on node 0 ended early, [\d.]+ s in, with exit code 0; rank \d still waited for it, "
        r"and (failed [\d.]+ s later|was cut off by that): RuntimeError: .* \(train\.py:\d+, in step\)",
        said,
    ), said
    assert fields["rank"] == 1
    assert fields["exit_code"] == 0


def test_an_exception_that_is_on_its_way_out_for_long(verdict):
    """It has closed the connections of the others, and would be ended before it has told of its exception."""
    script = GLOO.format(step='if number == 3 and rank == 3:\n            raise ValueError("bad batch")')
    script = script.replace(
        "    for number in range(6):\n        step(number)\n",
        """    try:
        for number in range(6):
            step(number)
    finally:
        dist.destroy_process_group()
        if rank == 3:
            __import__("time").sleep(100)
""",
    )
    said, fields = verdict(script)
    assert re.match(
        r"rank 3 on node 1 failed first, [\d.]+ s in: ValueError: bad batch \(train\.py:\d+, in step\); ",
        said,
    ), said
    assert (fields["rank"], fields["error_type"], fields["exit_code"]) == (3, "ValueError", 1)


def test_a_rank_for_which_the_others_wait_in_vain(verdict):
    script = GLOO.format(step="if number == 3 and rank == 3:\n            __import__('time').sleep(100)")
    # Of the steps alone: on a busy machine ranks begin further apart than that.
    script = script.replace(
        '    dist.init_process_group("gloo")\n',
        """    import datetime

    dist.init_process_group("gloo")
    group = dist.new_group(timeout=datetime.timedelta(seconds=2))
""",
    )
    said, fields = verdict(script.replace("torch.ones(4))", "torch.ones(4), group=group)"))
    assert re.match(
        r"rank 3 on node 1 kept the others waiting: it was in step \(train\.py:\d+\) when rank \d gave up, "
        r"[\d.]+ s in: RuntimeError: .*Timed out waiting 2000ms for \w+ operation .*\(train\.py:\d+, in step\)",
        said,
    ), said
    assert (fields["rank"], fields["late"], fields["exit_code"]) == (3, [3], 1)


def test_a_port_that_another_rank_holds(verdict):
    script = """
        import os, pathlib, signal, socket, time

        if os.environ["NODE_RANK"] != "0":
            signal.pause()
        port = int(os.environ["MASTER_PORT"])
        if os.environ["LOCAL_RANK"] == "0":
            holder = socket.create_server(("127.0.0.1", port))
            pathlib.Path("outputs", "held").write_text(str(os.getpid()))
            signal.pause()
        while not pathlib.Path("outputs", "held").exists():
            time.sleep(0.01)
        socket.create_server(("127.0.0.1", port))
    """
    said, fields = verdict(script)
    assert re.match(
        r"rank 1 on node 0 failed first, [\d.]+ s in: OSError: \[Errno 98\] Address already in use .*"
        r"\(train\.py:\d+, in <module>\); port \d+ is held by process \d+ \(python\S*\); ",
        said,
    ), said
    assert fields["error_type"] == "OSError"


def test_a_module_that_is_missing_on_one_node(verdict):
    script = """
        import os
        import sys

        if os.environ["NODE_RANK"] == "1":
            sys.path[:] = [entry for entry in sys.path if "lib/python" not in entry]
        import sqlite3

        import signal
        signal.pause()
    """
    said, _ = verdict(script)
    assert re.match(
        r"rank [23] on node 1 failed first, [\d.]+ s in: ModuleNotFoundError: No module named 'sqlite3' "
        r"\(train\.py:\d, in <module>\)",
        said,
    ), said


def test_a_crash_of_native_code(verdict):
    script = """
        import ctypes, os, signal

        def step():
            ctypes.string_at(0)

        if os.environ["RANK"] == "2":
            step()
        signal.pause()
    """
    said, fields = verdict(script)
    assert re.match(r"rank 2 on node 1 failed first, [\d.]+ s in: killed by signal 11 \(SIGSEGV: ", said), (
        said
    )
    assert "(train.py:5, in step); ranks 0-1 and 3 were then stopped" in said
    assert (fields["file"], fields["line"], fields["function"]) == ("train.py", 5, "step")


def test_a_program_that_does_not_exist(verdict):
    said, _ = verdict("", command="trian --epochs 3")
    assert re.match(
        r"rank \d on node \d failed first, [\d.]+ s in: exit code 127: .*trian: command not found", said
    )


def test_a_script_that_does_not_exist(verdict):
    said, _ = verdict("", command="python trian.py")
    assert re.match(
        r"rank \d on node \d failed first, [\d.]+ s in: exit code 2: .*can't open file '.*trian\.py'", said
    )


def test_without_the_hook_the_traceback_in_the_log_tells(verdict):
    script = """
        import os, signal

        if os.environ["RANK"] == "0":
            raise ValueError("bad batch")
        signal.pause()
    """
    said, fields = verdict(script, environment_variables={"DRUMLINE_HOOK": "0"})
    assert re.match(
        r"rank 0 on node 0 failed first, [\d.]+ s in: "
        r"ValueError: bad batch \(train\.py:5, in <module>\); ranks 1-3 were then stopped",
        said,
    ), said
    assert fields["error_type"] == "ValueError"


def test_an_error_that_only_rank_0_would_print(verdict):
    script = """
        import os, signal, sys

        if os.environ["RANK"] != "2":
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            signal.pause()
        try:
            raise ValueError("the checkpoint is cut short")
        except ValueError:
            sys.exit(1)
    """
    said, fields = verdict(script)
    assert re.match(
        r"rank 2 on node 1 failed first, [\d.]+ s in: exit code 1, after ValueError: the checkpoint is cut short "
        r"\(train\.py:8, in <module>\); ranks 0-1 and 3 were then stopped",
        said,
    ), said
    assert fields["stopped"] == [0, 1, 3]


# Out of memory


def _memory_group() -> str:
    """Where this machine lets us limit the memory of what we start; empty: nowhere."""
    for root, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        folder = Path(root) / f"drumline-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            folder.mkdir()
            if (folder / limit).exists():
                folder.rmdir()
                return str(folder / limit)
            folder.rmdir()
    return ""


@pytest.fixture
def little_memory():
    """The file through which a process joins a group that may use 256 MB."""
    limit = Path(_memory_group() or pytest.skip("this machine lets nobody limit the memory of a group"))
    limit.parent.mkdir()
    try:
        limit.write_text(str(256 << 20))
        yield limit.parent / "cgroup.procs"
    finally:
        limit.parent.rmdir()


def test_out_of_memory(verdict, cli, little_memory):
    script = """
        import os, signal

        held = []
        if os.environ["RANK"] == "1":
            while True:
                held.append(bytearray(os.urandom(1 << 20)) * 8)
        signal.pause()
    """

    def limited(*arguments):
        return cli(*arguments, before=lambda: little_memory.write_text(str(os.getpid())))

    said, fields = verdict(script, cli=limited)
    assert re.match(
        r"rank 1 on node 0 failed first, [\d.]+ s in: "
        r"killed by signal 9 \(SIGKILL: the kernel killed it at \d+ MiB, for memory had run out\)",
        said,
    ), said
    assert fields["signal"] == 9
