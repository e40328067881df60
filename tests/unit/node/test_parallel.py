"""The manager of a parallel job's mini-batches and its workers, as programs with a script of a user."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from waiting import wait_until

from drumline.node.parallel import manager

SCRIPT = """
    import os

    def init():
        print("begun")

    def run(mini_batch):
        return [open(path).read() for path in mini_batch]
"""


@pytest.fixture
def parallel(tmp_path):
    """Start a manager for a node, over ten files whose content is their number."""
    (tmp_path / "data").mkdir()
    for number in range(10):
        (tmp_path / "data" / f"{number}.txt").write_text(str(number))
    (tmp_path / "src").mkdir()
    started = []

    def start(script=SCRIPT, node=0, env=None, stdout=subprocess.PIPE, **settings):
        (tmp_path / "src" / "score.py").write_text(textwrap.dedent(script))
        told = {
            "script": "score.py", "arguments": "", "input": "x", "folder": str(tmp_path / "parallel"), "nodes": 1,
            "workers": 2, "batch_size": 3, "max_retries": 1, "timeout_s": 60, "most_batches": -1, "most_items": -1,
            "most_percent": 100, "level": "INFO", "output": "o", **settings,
        }  # fmt: skip
        variables = {
            "AZURE_ML_INPUT_x": str(tmp_path / "data"),
            "AZURE_ML_OUTPUT_o": str(tmp_path / "rows"),
            manager.SETTINGS: json.dumps(told),
            "NODE_RANK": str(node),
            "PATH": os.environ["PATH"],
            **(env or {}),
        }
        process = subprocess.Popen(
            [sys.executable, manager.__file__],
            cwd=tmp_path / "src",
            env=variables,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


@pytest.fixture
def run(parallel, tmp_path):
    """To its end: its exit code, what it said, and the rows that it has written."""

    def to_end(*args, **settings):
        process = parallel(*args, **settings)
        said = process.communicate(timeout=60)[0]
        rows = tmp_path / "rows"
        return process.returncode, said, rows.read_text().splitlines() if rows.exists() else None

    return to_end


def test_rows_come_in_the_order_of_the_items(run):
    code, said, rows = run()
    assert (code, rows) == (0, [str(number) for number in range(10)])
    assert said.count("begun") == 2
    assert "parallel: 10 items in 4 mini-batches" in said
    assert said.endswith("parallel: 4 mini-batches done, 0 of them failed, with 0 items\n")


def test_nodes_share_the_mini_batches_and_the_first_writes_what_all_returned(parallel, tmp_path):
    first = parallel(nodes=2, node=0)
    said = [first, parallel(nodes=2, node=1)]
    outputs = [process.communicate(timeout=60)[0] for process in said]
    assert [process.returncode for process in said] == [0, 0], outputs
    assert (tmp_path / "rows").read_text().split() == [str(number) for number in range(10)]
    notes = [(tmp_path / "parallel" / f"node-{node}.jsonl").read_text() for node in (0, 1)]
    batches = [sorted(json.loads(line)["batch"] for line in text.split("\n") if line) for text in notes]
    assert batches == [[0, 2], [1, 3]]


def test_arguments_are_words_whatever_the_values_hold(run):
    script = """
        import sys
        def run(mini_batch):
            return [repr(sys.argv)] * len(mini_batch)
    """
    arguments = (
        "--a ${{ inputs.a }} --b=${{inputs.b.path}}/x 'c d' $[[--e ${{inputs.e}}]] $[[--f ${{inputs.a}}]]"
    )
    env = {"AZURE_ML_INPUT_a": "1 2;$HOME", "AZURE_ML_INPUT_b": "/p q"}
    code, said, rows = run(script, arguments=arguments, env=env, batch_size=10, workers=1)
    assert code == 0, said
    assert rows[0] == repr(["score.py", "--a", "1 2;$HOME", "--b=/p q/x", "c d", "--f", "1 2;$HOME"])


def test_a_mini_batch_that_fails_is_tried_again_and_told_with_its_items(run, tmp_path):
    script = f"""
        import os
        def run(mini_batch):
            for path in mini_batch:
                if path.endswith("4.txt") and not os.path.exists({str(tmp_path / "once")!r}):
                    open({str(tmp_path / "once")!r}, "w")
                    raise ValueError("not yet")
                if path.endswith("9.txt"):
                    raise ValueError("never")
            return list(mini_batch)
    """
    code, said, rows = run(script)
    assert (code, len(rows)) == (0, 9)
    items = [f"{tmp_path}/data/{number}.txt" for number in range(10)]
    first = (
        f"mini-batch 1 failed, try 1 of 2: ValueError: not yet (score.py:7, in run); its items: {items[3]}, "
    )
    assert first in said
    assert said.count("mini-batch 1 failed") == 1
    assert (
        f"mini-batch 3 failed, try 2 of 2: ValueError: never (score.py:9, in run); its items: {items[9]}\n"
        in said
    )
    assert "worker.py" not in said
    assert said.endswith("4 mini-batches done, 1 of them failed, with 1 item\n")


FAILS = """
    import os, time
    def run(mini_batch):
        if mini_batch[0].endswith("0.txt"):
            {0}
        return [open(path).read() for path in mini_batch]
"""


@pytest.mark.parametrize(
    ("what", "told", "settings"),
    [
        ("os._exit(3)", "its worker ended with exit code 3", {}),
        ("os.kill(os.getpid(), 11)", "its worker was killed by SIGSEGV", {}),
        ("os.system('sleep 600')", "run() took longer than 0.3 s", {"timeout_s": 0.3}),
        ("return mini_batch[:1]", "run() returned 1 for 3 items", {}),
        ("return None", "TypeError: run() returned NoneType; it must return a list", {}),
        ("return 'text'", "TypeError: run() returned str", {}),
    ],
)
def test_other_ways_to_fail(run, what, told, settings):
    code, said, rows = run(FAILS.format(what), **settings)
    assert f"mini-batch 0 failed, try 2 of 2: {told}" in said
    kept = 1 if "[:1]" in what else 0
    assert (code, len(rows)) == (0, 7 + kept)
    assert said.endswith(f"4 mini-batches done, 1 of them failed, with {3 - kept} items\n")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"most_batches": 0}, "mini_batch_error_threshold 0 exceeded: 1 of 4 mini-batches failed"),
        ({"most_items": 2}, "error_threshold 2 exceeded: 3 of 10 items failed"),
        ({"most_percent": 20}, "allowed_failed_percent 20 exceeded: 1 of 4 mini-batches failed"),
    ],
)
def test_more_failures_than_may_be_fail_the_job(run, settings, told):
    code, said, _ = run(FAILS.format("raise ValueError('bad')"), **settings)
    assert code == 1
    assert said.splitlines()[-1] == f"{told}; first: ValueError: bad (score.py:5, in run)"


@pytest.mark.parametrize("settings", [{"most_batches": 1}, {"most_items": 3}, {"most_percent": 25}])
def test_as_many_failures_as_may_be_do_not(run, settings):
    assert run(FAILS.format("raise ValueError('bad')"), **settings)[0] == 0


LAST = (
    "mini_batch_error_threshold 1 exceeded: 2 of 4 mini-batches failed; "
    "first: ValueError: bad (score.py:5, in run)"
)


def test_failures_of_other_nodes_count(run, tmp_path):
    (tmp_path / "parallel").mkdir()
    (tmp_path / "parallel" / "node-1.failed-0").write_text('[1, 3, 1, "it broke"]')
    code, said, _ = run(FAILS.format("raise ValueError('bad')"), nodes=2, most_batches=1)
    assert (code, said.splitlines()[-1]) == (1, LAST)


BROKEN = "def init():\n    raise OSError('no\\nmodel')\n\ndef run(batch):\n    return batch\n"


@pytest.mark.parametrize(
    ("script", "first", "last"),
    [
        (BROKEN, "Traceback", "init() failed: OSError: no model (score.py:2, in init)"),
        (
            "import no_such",
            "Traceback",
            "score.py cannot be loaded: ModuleNotFoundError: No module named 'no_such' (score.py:1, in <module>)",
        ),
        ("def run(:", "", "score.py cannot be loaded: SyntaxError: "),
        ("def init():\n    pass\n", "score.py has", "score.py has no function run(mini_batch)"),
    ],
)
def test_a_script_that_cannot_begin_fails_the_job_with_its_own_frames_alone(run, script, first, last):
    code, said, _ = run(script, workers=1)
    assert code == 1
    begun, *lines = said.splitlines()
    assert begun == "parallel: 10 items in 4 mini-batches"
    assert lines[0].startswith(first)
    assert lines[-1].startswith(last)
    assert "worker.py" not in said
    assert "importlib" not in said
    assert {line.split('"')[1].rpartition("/")[2] for line in lines if line.startswith("  File")} <= {
        "score.py"
    }


def test_a_worker_that_ends_is_seen_while_what_it_forked_lives(run):
    code, said, _ = run(
        """
        import os, signal

        def init():
            if os.fork() == 0:
                signal.pause()
            os.kill(os.getpid(), signal.SIGKILL)

        def run(mini_batch):
            return mini_batch
        """
    )
    assert (code, "was killed by SIGKILL before its first mini-batch" in said) == (1, True)


def test_names_that_are_not_utf8_are_items_and_rows(parallel, tmp_path):
    odd = os.fsencode(tmp_path / "data") + b"/\xff"
    with open(odd, "w") as file:
        file.write("odd")
    script = """
        def run(mini_batch):
            print(ascii(mini_batch), flush=True)
            if len(mini_batch) > 1:
                raise ValueError("too many")
            return mini_batch
    """
    failed = parallel(script, batch_size=20, max_retries=0)
    assert "its items" in failed.communicate(timeout=60)[0]
    assert failed.returncode == 0
    done = parallel(script, batch_size=1, folder=str(tmp_path / "again"))
    done.communicate(timeout=60)
    assert odd in (tmp_path / "rows").read_bytes().splitlines()


def test_total_failure_and_no_work_are_warned_of(run, tmp_path):
    code, said, _ = run("def run(batch):\n    raise ValueError('bad')\n", max_retries=0)
    assert code == 0
    last = "warning: 4 of 4 mini-batches failed; first: ValueError: bad (score.py:2, in run)"
    assert said.splitlines()[-1] == last
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    code, said, _ = run(folder=str(tmp_path / "other"))
    assert (code, said.splitlines()[-1]) == (0, "warning: input_data holds no files")


def test_a_line_is_written_with_its_end(parallel):
    # A pipe of packets: what is read is what was written at once.
    reader, writer = os.pipe2(os.O_DIRECT)
    script = """
        import sys
        def run(mini_batch):
            print("line")
            print("error", file=sys.stderr)
            raise ValueError("bad")
    """
    process = parallel(script, env={"PYTHONUNBUFFERED": "1"}, stdout=writer, most_batches=0)
    os.close(writer)
    packets = []
    while packet := os.read(reader, 1 << 16):
        packets.append(packet)
    os.close(reader)
    assert process.wait(60) == 1
    assert b"line\n" in packets
    assert [packet for packet in packets if not packet.endswith(b"\n")] == []


def test_a_data_frame_is_appended_as_azure_does(run):
    script = """
        class Frame:
            columns = ["a", "b"]
            def __init__(self, batch):
                self.batch = batch
            def __len__(self):
                return len(self.batch)
            def to_csv(self, sep, header, index):
                assert not header and not index
                return "".join(f"{len(path)}{sep}x\\n" for path in self.batch)

        def run(mini_batch):
            return Frame(mini_batch)
    """
    code, said, rows = run(script)
    assert code == 0, said
    assert len(rows) == 10
    assert rows[0].endswith(" x")


def test_a_second_parameter_tells_of_the_mini_batch_and_shutdown_is_called(run):
    script = """
        def run(mini_batch, mini_batch_context):
            return [mini_batch_context.minibatch_index for _ in mini_batch]
        def shutdown():
            print("shut down")
    """
    code, said, rows = run(script)
    assert (code, rows) == (0, [str(number // 3) for number in range(10)])
    assert said.count("shut down") == 2


@pytest.mark.skipif(sys.version_info < (3, 14), reason="older Pythons look the names up at the definition")
def test_annotations_for_a_type_checker_alone_are_passed_by(run):
    script = """
        def run(mini_batch: NDArray, mini_batch_context: Context) -> Rows:
            return [mini_batch_context.minibatch_index for _ in mini_batch]
    """
    code, said, rows = run(script)
    assert (code, rows) == (0, [str(number // 3) for number in range(10)]), said


def test_a_folder_as_output_gets_a_file_and_without_one_nothing_is_kept(parallel, tmp_path):
    (tmp_path / "rows").mkdir()
    assert parallel().wait(60) == 0
    assert len((tmp_path / "rows" / "parallel_run_step.txt").read_text().split()) == 10
    assert parallel(below="/made/here.csv").wait(60) == 0
    assert len((tmp_path / "rows" / "made" / "here.csv").read_text().split()) == 10
    assert parallel(output=None).communicate(timeout=60)[0].endswith("with 0 items\n")


def test_one_that_is_started_again_goes_on_where_it_was_killed(parallel, run, tmp_path):
    script = f"""
        import os, time
        def run(mini_batch):
            if mini_batch[0].endswith("3.txt") and not os.path.exists({str(tmp_path / "again")!r}):
                time.sleep(600)
            with open({str(tmp_path / "ran")!r}, "a") as file:
                file.write(mini_batch[0][-5] + "\\n")
            return [open(path).read() for path in mini_batch]
    """
    first = parallel(script)
    ran = tmp_path / "ran"
    notes = tmp_path / "parallel" / "node-0.jsonl"
    wait_until(lambda: notes.exists() and notes.read_text().count("batch") == 3, what="three mini-batches")
    for child in Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    first.kill()
    first.communicate()
    with notes.open("a") as file:
        file.write('{"batch": 1, "fai')  # Cut off.
    (tmp_path / "again").touch()
    code, said, rows = run(script, env={"DRUMLINE_ATTEMPT": "1"})
    assert code == 0, said
    assert rows == [str(number) for number in range(10)]
    assert sorted(ran.read_text().split()) == ["0", "3", "6", "9"]


def test_files_below_links_are_items_and_circles_end(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "x").touch()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "far")
    (tmp_path / "data" / "round").symlink_to(tmp_path / "data")
    (tmp_path / "data" / "a").touch()
    items = [os.path.relpath(item, tmp_path / "data") for item in manager.list_items(str(tmp_path / "data"))]
    assert items == ["a", "link/x"]
    assert manager.list_items(str(tmp_path / "data" / "a")) == [str(tmp_path / "data" / "a")]


def test_workers_share_the_gpus_in_turn(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert [manager.choose_gpus(number)["CUDA_VISIBLE_DEVICES"] for number in range(3)] == ["2", "5", "2"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2")
    assert manager.choose_gpus(1) == {}
