"""The table of ``drumline job top`` on terminals of several widths."""

import pytest

from drumline.cli.views import top
from drumline.contract.record import ABSENT
from drumline.control.facts import usage
from drumline.control.facts.steps import TrainingFacts

NODE = usage.NodeUsage(
    node=0,
    host="node-with-a-name-01",
    sampled_at="1970-01-01T00:00:00.000Z",
    age_seconds=1.0,
    cpu_percent=812.0,
    cores=64,
    memory_bytes=100 << 30,
    memory_total_bytes=512 << 30,
    memory_limit=None,
    swap_bytes=0,
    received_bytes_per_second=1 << 20,
    sent_bytes_per_second=1 << 20,
    read_bytes_per_second=1 << 20,
    written_bytes_per_second=1 << 20,
    load=8.25,
    gpus=[],
    others=None,
)
RANK = {
    "label": "0",
    "node": 0,
    "pid": 4_000_000,
    "state": "running",
    "cpu_percent": 98.0,
    "memory_bytes": 3 << 30,
    "peak_memory_bytes": 4 << 30,
    "read_bytes_per_second": 1 << 20,
    "written_bytes_per_second": 1 << 20,
    "processes": 3,
    "threads": 12,
    "seconds_since_output": 2.0,
}
JOB = usage.JobUsage(ABSENT, "calm_drum", "command", "Running", "", "local", 60.0, nodes=[NODE], ranks=[RANK])


@pytest.mark.parametrize("width", [50, 80, 100])
def test_columns_that_do_not_fit_are_left_out_and_named(width):
    wide = top.format_usage(JOB)
    lines = top.format_usage(JOB, width)
    assert max(map(len, wide)) > 100
    assert max(map(len, lines[:-1])) <= width
    heads = lines[2].split("  ") + lines[5].split("  ")
    for head in ("NODE", "CPU", "MEMORY", "RANK", "STATE"):
        assert any(one.strip() == head for one in heads)
    left_out = lines[-1].removeprefix(f"left out, for {width} columns: ").split(", ")
    assert left_out[0] == "SWAP"
    for head in left_out:
        assert head in wide[2] or head in wide[5]
    # A column without a value is not missed.
    assert "GPU MEM" not in left_out


def test_a_wide_terminal_has_all_columns():
    assert top.format_usage(JOB, 400) == top.format_usage(JOB)


def test_what_a_job_says_of_its_steps_stays_in_its_line():
    training = TrainingFacts(done=5, told_by="metric x\njob a is Completed")
    lines = top.format_usage(JOB._replace(training=training), 100)
    assert not [line for line in lines if line.startswith("job a is")]
    assert [line for line in lines if "metric x job a is Completed" in line]
