"""benchmarks/stragglers: what it draws, the line that it makes slow, and what it counts as right."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from drumline.control.measure import stragglers
from drumline.control.measure.measured_sizes import RankSteps, SizeRun
from drumline.control.measure.scale_report import build_report

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def load_run():
    spec = importlib.util.spec_from_file_location("stragglers_run", BENCHMARKS / "stragglers" / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


run = load_run()


def test_a_seed_draws_one_slow_rank_and_every_rank_of_all_seeds():
    for kind in run.KINDS:
        cases = [run.draw_case(kind, seed) for seed in range(20)]
        assert cases == [run.draw_case(kind, seed) for seed in range(20)]
        assert {one.slow for one in cases} == ({None} if kind == run.NOBODY else {0, 1, 2, 3})
        for case in cases:
            slow = {
                name: [rank for rank in range(4) if case.training[name][rank] > min(case.training[name])]
                for name in ("compute_s", "input_s")
            }
            assert slow == {
                "compute_s": [case.slow] if kind == "compute" else [],
                "input_s": [case.slow] if kind == "input" else [],
            }


@pytest.mark.parametrize(
    ("device", "address", "expected"),
    [
        ("port2", "", "rate 9bit"),
        ("port1", "", "rate 200bit"),
        ("port20", "", "rate 200bit"),
        ("eth0", "10.77.0.3", "rate 9bit"),
        ("eth0", "10.77.0.30", "rate 200bit"),
    ],
)
def test_one_line_gets_another_rate(tmp_path, device, address, expected):
    ip, tc, slow = (tmp_path / name for name in ("ip", "tc", "slow"))
    ip.write_text(f"#!/bin/sh\necho '2: eth0 inet {address}/24 scope global eth0'\n")
    tc.write_text('#!/bin/sh\necho "$@"\ncat\n')
    script = tmp_path / "slowing"
    script.write_text(run.TC.format(slow=slow, ip=ip, tc=tc))
    for path in (ip, tc, script):
        path.chmod(0o755)
    given = f"qdisc replace dev {device} root tbf rate 200bit burst 5b\n"

    def ask():
        words = [str(script), "-batch", "-"]
        return subprocess.run(words, input=given, capture_output=True, text=True, check=True)

    untouched = ask()
    assert (untouched.stdout, untouched.stderr) == (f"-batch -\n{given}", "")
    slow.write_text("2 10.77.0.3 9\n")
    assert ask().stdout == f"-batch -\n{given.replace('rate 200bit', expected)}"


def made(late=None, *, cpu_share=0.5, input_s=0.0):
    """The report of four ranks, of which one is late by 20 ms."""
    ranks = tuple(
        RankSteps(
            rank,
            rank,
            (0.1,) * 40,
            (0.001 + input_s * (rank == late),) * 40,
            reduce_s=(0.03 if rank == late else 0.05,) * 40,
            overlap_s=(0.0,) * 40,
        )
        for rank in range(4)
    )
    return build_report("", [SizeRun(4, 4, "job", ranks, (1000,), cpu_share=cpu_share)], to=4)


def test_only_the_class_and_the_node_that_were_made_slow_are_right():
    case = run.draw_case("compute", 0)
    other = (case.slow + 1) % 4
    assert run.judge(case, made(case.slow)) == run.RIGHT
    assert run.judge(case, made(other)) == run.WRONG
    assert run.judge(case, made()) == run.WRONG
    assert run.judge(case, made(case.slow, input_s=0.02)) == run.WRONG
    assert run.judge(case._replace(kind=stragglers.INPUT), made(case.slow, input_s=0.02)) == run.RIGHT
    assert run.judge(case, made(other, cpu_share=0.95)) == run.BUSY
    failed = SizeRun(4, 4, "job", why_not="job job failed: rank 0 failed first")
    assert run.judge(case, build_report("", [failed], to=4)) == run.WRONG
    nobody = run.draw_case(run.NOBODY, 0)
    assert (run.judge(nobody, made()), run.judge(nobody, made(1))) == (run.RIGHT, run.WRONG)
