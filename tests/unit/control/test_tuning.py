"""What a tuning tries of a job, how steps become figures, and the file that won."""

import itertools
import json
import os
import random

import pytest

from drumline.cli.main import main
from drumline.contract.errors import SpecError, UsageError
from drumline.contract.folder import RunFolder
from drumline.contract.outcome import Outcome, StepOutcome
from drumline.control.driver.tune_trials import FEWEST, reduce_steps
from drumline.control.measure import tune_parameters, tune_results, tune_sweep
from drumline.control.measure.tune_parameters import NodeRoom
from drumline.control.measure.tune_sweep import TuneRequest
from drumline.control.submission import planning
from drumline.plan.search import halving, tuning
from drumline.spec.jobs.command import Command
from drumline.spec.load import load_job

PYTORCH = {"type": "pytorch", "process_count_per_instance": 2}
SITE = NodeRoom(4)


def make_job(tmp_path, **fields):
    path = tmp_path / "job.yml"
    given = {"command": "python train.py --batch ${{inputs.batch_size}}", "inputs": {"batch_size": 32}}
    written = {**given, "distribution": PYTORCH, **fields}
    path.write_text(json.dumps({name: value for name, value in written.items() if value is not None}))
    return load_job(str(path))


def list_values(tmp_path, *words, site=SITE, **fields):
    listed = tune_parameters.list_parameters(words, make_job(tmp_path, **fields), site)
    return [(one.target, one.values) for one in listed]


def list_settings(tmp_path, *words, site=SITE, **fields):
    job = make_job(tmp_path, **fields)
    return tune_parameters.list_settings(tune_parameters.list_parameters(words, job, site), job, site)


def test_each_setting_has_its_place_in_the_job(tmp_path):
    assert list_values(tmp_path) == [("procs", (1, 2, 4)), ("env:OMP_NUM_THREADS", (1, 2, 4))]
    assert list_values(tmp_path, distribution=None) == [("env:OMP_NUM_THREADS", (1, 2, 4))]
    assert list_values(tmp_path, "procs", site=NodeRoom(64, gpus=2)) == [("procs", (1, 2))]
    assert list_values(tmp_path, "batch") == [("input:batch_size", (16, 32, 64, 128))]
    assert list_values(tmp_path, "batch=8|8|64") == [("input:batch_size", (8, 64))]
    variables = {"NUM_WORKERS": "2", "BUCKET_CAP_MB": "25"}
    assert list_values(tmp_path, "workers,buckets=1.5|25", environment_variables=variables) == [
        ("env:NUM_WORKERS", (0, 1, 2, 4)),
        ("env:BUCKET_CAP_MB", (1.5, 25)),
    ]
    assert list_values(tmp_path, "env:A=1|x, batch_size=4") == [
        ("env:A", ("1", "x")),
        ("input:batch_size", (4,)),
    ]


def test_combinations_that_need_more_cores_than_there_are_are_left_out(tmp_path):
    assert list_settings(tmp_path) == [(1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1)]
    assert list_settings(tmp_path, "threads") == [(1,), (2,)]
    # Whoever names values has a reason.
    assert list_settings(tmp_path, "threads=4|8") == [(4,), (8,)]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("proc", "--over: 'proc' is neither a setting nor an input with a value"),
        (
            "workers",
            "--over workers: the job has neither an input 'num_workers' nor a variable 'NUM_WORKERS'",
        ),
        ("procs=0", "--over procs: 0 is not a number from 1 on"),
        ("procs=two", "--over procs: 'two' is not a number from 1 on"),
        ("batch_size", "--over batch_size: its values are missing"),
        ("env:A", "--over env:A: its values are missing"),
        ("env:1A=x", "--over: 'env:1A' is not the name of a variable"),
        ("env:A=x|", "--over env:A: there is an empty value"),
        ("batch=1|2,batch_size=3", "--over: 'batch' is set twice"),
        ("", "--over: '' is neither a setting nor an input with a value"),
        ("env:A=${{inputs.x}}", "--over env:A: a value cannot hold a placeholder"),
        ("env:A=1|a\x1b[31m", "--over env:A: 'a\\x1b[31m' has a control character, or is not UTF-8"),
        ("batch_size=1|2\u0085x", "--over batch_size: '2\\x85x' has a control character"),
        ("env:A=a\nb", "--over env:A: 'a\\nb' has a control character"),
        ("env:RANK=1|2", "--over: the launcher sets 'RANK' for each rank, so it cannot be tried"),
        ("env:OMPI_COMM_WORLD_SIZE=1|2", "--over: the launcher sets 'OMPI_COMM_WORLD_SIZE' for each rank"),
        ("env:TF_CONFIG=a|b", "--over: the launcher sets 'TF_CONFIG' for each rank"),
        ("env:DRUMLINE_STEPS=0|1", "--over: 'DRUMLINE_STEPS' says how steps are followed"),
        ("env:DRUMLINE_HOOK=0|1", "--over: 'DRUMLINE_HOOK' says how steps are followed"),
        ("env:A=a\udc80", "--over env:A: 'a\\udc80' has a control character, or is not UTF-8"),
    ],
)
def test_what_cannot_be_tried_is_refused_with_a_sentence(tmp_path, word, message):
    with pytest.raises(UsageError) as error:
        list_values(tmp_path, word)
    assert error.value.message.startswith(message)


def test_what_needs_a_look_at_the_nodes_needs_values_elsewhere(tmp_path):
    with pytest.raises(UsageError, match="the nodes of this compute are not known from here"):
        list_values(tmp_path, "procs", site=NodeRoom(None))
    with pytest.raises(UsageError, match="procs needs a job with the distribution pytorch or mpi"):
        list_values(tmp_path, "procs=1|2", distribution=None)
    many = "env:A=" + "|".join(map(str, range(201)))
    with pytest.raises(UsageError, match="201 combinations, and 200 are the most"):
        list_settings(tmp_path, many)


@pytest.mark.parametrize(
    ("words", "site", "message"),
    [
        ([], NodeRoom(1), "procs 1, threads 1: a node of this job has 1 core"),
        (["procs"], NodeRoom(8, gpus=1), "procs 1: a node of this job has 1 GPU and 8 cores"),
        (["threads"], NodeRoom(2), "threads 1: a node of this job has 2 cores for 2 processes"),
        (["env:X=a|a"], SITE, "env:X a: each has one value"),
    ],
)
def test_one_setting_is_nothing_to_compare(tmp_path, words, site, message):
    with pytest.raises(UsageError) as error:
        list_settings(tmp_path, *words, site=site)
    assert error.value.message == f"--over: there is only one setting to try, {message}"


def test_parameters_of_mpi_can_be_tried(tmp_path):
    assert list_values(tmp_path, "env:OMPI_MCA_btl=tcp|self") == [("env:OMPI_MCA_btl", ("tcp", "self"))]


def test_the_setting_that_the_job_file_has_is_known(tmp_path):
    assert find_tuning(tmp_path, "throughput", "procs=1|2,batch=16|32").own == 3
    assert find_tuning(tmp_path, "throughput", "procs=1|2,batch=16|64").own is None
    # What the file does not state is not its own.
    assert find_tuning(tmp_path, "throughput", "procs=1|2,threads=1|2").own is None
    variables = {"environment_variables": {"OMP_NUM_THREADS": "2"}}
    assert find_tuning(tmp_path, "throughput", "threads=1|2", **variables).own == 1


def test_only_values_beyond_which_there_may_be_others_are_edges(tmp_path):
    def edges(*words, site=SITE):
        job = make_job(tmp_path)
        return tune_parameters.find_edges(tune_parameters.list_parameters(words, job, site), site)

    assert edges("batch=16|32|8,env:A=a|b") == {"batch": (8, 32)}
    assert edges("batch=1|32,env:A=2") == {"batch": (None, 32)}
    assert edges("procs,threads") == {"procs": (None, None), "threads": (None, None)}
    assert edges("procs=2|3,threads=2|4") == {"procs": (2, 3), "threads": (2, None)}
    assert edges("procs", site=NodeRoom(64, gpus=2)) == {"procs": (None, None)}
    # A process for each GPU is all that a node has room for.
    assert edges("procs=2|4", site=NodeRoom(64, gpus=4)) == {"procs": (2, None)}
    assert edges("env:A=0|1,env:B=2|10") == {"env:B": ("2", "10")}


def end(number, setting, metric=None, rung=0, **detail):
    figures = {} if metric is None else {"metric": metric, "low": 0.9 * metric, "high": 1.1 * metric}
    given = {"setting": setting, "rung": rung, "step_s": 0.1, "measured": 10, **figures, **detail}
    step = StepOutcome("trial", f"job-{number}", 0.0, given)
    step.status = "Completed" if figures else "Failed"
    step.reason = "" if figures else "no room"
    return step


def describe(made, *steps):
    return tuning.describe_win(made, steps, made.find_standing(steps).winner)


def test_the_end_says_whether_the_win_is_clear(tmp_path):
    made = find_tuning(tmp_path, "throughput", "env:KIND=x|y|z")
    clear = [end(0, 0, 100.0), end(1, 1, 50.0), end(2, 2, 60.0), end(3, 0, 100.0, 1)]
    assert describe(made, *clear) == "clearly faster than all others"
    near = [end(0, 0, 100.0), end(1, 1, 95.0), end(2, 2, 10.0), end(3, 0, 100.0, 1), end(4, 1, 96.0, 1)]
    assert describe(made, *near) == (
        "but env:KIND y may be as fast: two runs of one setting may differ by as much"
    )
    both = [*near[:2], end(2, 2, 97.0), near[3], end(4, 2, 97.0, 1)]
    assert describe(made, *both).startswith("but 2 others (env:KIND z; ...) may be as fast: ")
    alone = [end(0, 0, 100.0), end(1, 1), end(2, 2)]
    assert describe(made, *alone) == "the only one that could be measured"
    assert tuning.describe_counts(made, alone) == "1 of 3 settings measured in 3 runs, 2 failed"
    assert tuning.describe_counts(made, clear) == "3 of 3 settings measured in 4 runs"


def test_the_end_compares_the_best_with_the_jobs_own_and_tells_of_values_at_the_edge(tmp_path):
    made = find_tuning(tmp_path, "throughput", "batch=16|32|64")
    steps = [end(0, 0, 50.0), end(1, 1, 100.0), end(2, 2, 150.0), end(3, 2, 150.0, 1)]
    assert describe(made, *steps) == (
        "clearly faster than all others; 50 % faster than the job's own setting: batch 32; "
        "batch 64 is the largest that was tried: try more"
    )
    steps = [end(0, 0, 50.0), end(1, 1, 150.0), end(2, 2, 100.0), end(3, 1, 150.0, 1)]
    assert describe(made, *steps) == "clearly faster than all others; it is the job's own setting"
    steps = [end(0, 0, 105.0), end(1, 1, 100.0), end(2, 2, 10.0), end(3, 0, 105.0, 1), end(4, 1, 100.0, 1)]
    said = describe(made, *steps)
    assert "; 5 % faster than the job's own setting, but not clearly: batch 32; " in said
    assert said.endswith("batch 16 is the smallest that was tried: try less")
    shorter = find_tuning(tmp_path, "latency", "batch=16|32")
    steps = [end(0, 0, 0.1), end(1, 1, 0.2), end(2, 0, 0.1, 1)]
    assert "; 100 % faster than the job's own setting: batch 32; " in describe(shorter, *steps)


def test_the_figures_say_what_the_sentence_says(tmp_path):
    made = find_tuning(tmp_path, "throughput", "batch=16|32|64|128|256")
    ended = "it ends after 15 steps"
    outcome = Outcome()
    rows = [end(0, 0, 80.0), end(1, 1, 100.0), end(2, 2), end(3, 3, 87.0), end(4, 4, 84.0)]
    rows += [end(5, 1, 100.0, 1, ended=ended), end(6, 3, 79.0, 1)]
    outcome.steps.update({f"trial_{number}": row for number, row in enumerate(rows)})
    values = tune_results.to_values(RunFolder.for_job("tune-x"), outcome, made)
    assert (values["is_clear"], values["faster_than_own"]) == (False, 0.0)
    # First those that went furthest, then by value, and what failed.
    lines = [(line[0], line[-1]) for line in tune_results.list_lines(values)[1:]]
    assert lines == [
        ("32", f"100 samples/s (best; the job's own; {ended})"),
        ("128", "79 samples/s"),
        ("256", "84 samples/s (may be as fast)"),
        ("16", "80 samples/s"),
        ("64", "no room"),
    ]
    outcome.steps["trial_4"] = end(4, 4, 40.0)
    assert tune_results.to_values(RunFolder.for_job("tune-x"), outcome, made)["is_clear"]


def test_the_job_file_itself_is_not_overwritten(tmp_path, won, capsys):
    make_job(tmp_path)
    path = tmp_path / "job.yml"
    before = path.read_text()
    link, hard = tmp_path / "link.yml", tmp_path / "hard.yml"
    link.symlink_to(path)
    os.link(path, hard)
    for target in (path, link, hard):
        assert won(lambda: None, "--write", str(target)) == 2
        assert f"--write: '{target}' is the job file itself" in capsys.readouterr().err
    assert path.read_text() == before


def test_a_request_that_measures_nothing_is_refused():
    for given, message in (
        ({"steps": 4}, "--steps must be 5 or more"),
        ({"steps": 1901}, "--steps must be 1900 or less"),
        ({"at_once": 0}, "--at-once must be 1 or more"),
        ({"trial_timeout_s": 0}, "--trial-timeout must be 1 or more"),
    ):
        with pytest.raises(UsageError, match=message):
            tune_sweep.check_request(TuneRequest("throughput", **given))
    tune_sweep.check_request(TuneRequest("latency"))


def find_tuning(tmp_path, goal, *over, **fields):
    job = make_job(tmp_path, **fields)
    sweep = tune_sweep.make_sweep(job, TuneRequest(goal, over))
    return tuning.from_properties(sweep.properties)


def test_what_is_compared_depends_on_what_is_known_of_the_batch(tmp_path):
    made = find_tuning(tmp_path, "throughput", "procs=1|2,batch=8|16")
    assert (made.metric, made.goal, made.batch_of) == (tuning.SAMPLES, "maximize", "batch")
    assert made.settings == ((1, 8), (1, 16), (2, 8), (2, 16))
    assert made.value_of(3, 0.5, ranks=2) == 16 * 2 / 0.5
    made = find_tuning(tmp_path, "throughput", "procs=1|2")
    assert (made.metric, made.value_of(1, 0.5, ranks=2)) == (tuning.SAMPLES, 32 * 2 / 0.5)
    assert made._replace(strong=True).value_of(1, 0.5, ranks=2) == 32 / 0.5
    no_batch = {"command": "python train.py", "inputs": {}}
    made = find_tuning(tmp_path, "throughput", "procs=1|2", **no_batch)
    assert (made.metric, made.value_of(1, 0.5, ranks=2)) == (tuning.RANK_STEPS, 4.0)
    made = find_tuning(tmp_path, "throughput", "threads=1|2", **no_batch)
    assert (made.metric, made.value_of(1, 0.5, ranks=2)) == (tuning.STEPS, 2.0)
    made = find_tuning(tmp_path, "latency", "batch=8|16")
    assert (made.metric, made.goal, made.value_of(1, 0.5, ranks=2)) == (tuning.STEP_S, "minimize", 0.5)


@pytest.mark.parametrize("values", ["auto|32", "0|32"])
def test_a_batch_that_counts_no_samples_is_refused(tmp_path, values):
    fields = {"command": "python train.py ${{inputs.train_batch_size}}", "inputs": {"train_batch_size": 32}}
    wanted = "--over train_batch_size: .* is no number above 0"
    with pytest.raises(UsageError, match=wanted):
        find_tuning(tmp_path, "throughput", f"train_batch_size={values}", **fields)
    assert find_tuning(tmp_path, "latency", f"train_batch_size={values}", **fields).metric == tuning.STEP_S
    fields["inputs"] = {"train_batch_size": -1}
    assert find_tuning(tmp_path, "throughput", "threads=1|2", **fields).metric == tuning.STEPS


@pytest.mark.parametrize("name", ["DRUMLINE_STEPS", "DRUMLINE_HOOK"])
def test_a_job_whose_steps_are_not_followed_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match=f"{name} is 0, so no steps are followed"):
        find_tuning(tmp_path, "throughput", "threads=1|2", environment_variables={name: "0"})


def test_a_job_that_starts_again_after_a_hang_can_be_measured(tmp_path):
    drumline = {"hang_action": "restart", "hang_after": 0, "max_restarts": 3, "grace": 7}
    job = make_job(tmp_path, drumline=drumline)
    made = tuning.from_properties(
        tune_sweep.make_sweep(job, TuneRequest("throughput", ("threads=1|2",))).properties
    )
    trial = make_job(tmp_path, drumline=drumline)
    tuning.prepare_measured(trial, {}, made, 0)
    assert trial.drumline == {"grace": 7}
    assert planning.plan(trial).hang_action == "report"


def test_the_newest_tuning_is_found_though_older_ones_are_deleted(drumline_home):
    for name in ("tune-x-3", "tune-x_0", "tune-x-2_0", "tune-xy", "tune-x-02"):
        RunFolder.for_job(name).create()
    known, following = tune_sweep._find_last("tune-x")
    assert (known.name, following) == ("tune-x-3", "tune-x-4")
    RunFolder.for_job("tune-y").create()
    assert tune_sweep._find_last("tune-y")[1] == "tune-y-2"
    assert tune_sweep._find_last("tune-z") == (None, "tune-z")


def test_batches_that_are_ready_are_not_measured(tmp_path):
    loader = {"command": "python train.py ${{inputs.num_workers}}", "inputs": {"num_workers": 4}}
    made = find_tuning(tmp_path, "throughput", "workers=0|2|8|1000", **loader)
    assert [made.count_warm_steps(number) for number in range(4)] == [5, 5, 17, 100]
    made = find_tuning(tmp_path, "throughput", "threads=1|2", **loader)
    assert made.count_warm_steps(0) == 9
    variables = {"environment_variables": {"NUM_WORKERS": "8"}}
    made = find_tuning(tmp_path, "throughput", "env:NUM_WORKERS=auto|16", **variables)
    assert [made.count_warm_steps(number) for number in range(2)] == [5, 33]
    assert find_tuning(tmp_path, "throughput", "threads=1|2").count_warm_steps(0) == 5
    # A tuning of an earlier version goes on.
    older = json.loads(tuning.to_text(made))
    del older["workers"], older["workers_of"]
    assert tuning.from_properties({tuning.PROPERTY: json.dumps(older)}).count_warm_steps(0) == 5


def play_tuning(draws, steps=60):
    """The setting that wins where the steps of each take what its generator yields."""
    rungs, known = halving.plan_rungs(len(draws), steps), []
    while not (standing := halving.find_standing(rungs, len(draws), halving.MINIMIZE, known)).is_over:
        setting, wanted = standing.waiting[0], rungs[standing.rung].steps
        drawn = draws[setting]()
        seconds = [next(drawn) for _ in range(max(FEWEST, wanted // 3))]
        while True:
            rate = reduce_steps([seconds])
            bounds = (rate.step_s, rate.low_s, rate.high_s)
            one = halving.Measurement(setting, standing.rung, *bounds, spread=rate.spread)
            if len(seconds) >= wanted or halving.is_decided(rungs, one, known, halving.MINIMIZE):
                break
            seconds.append(next(drawn))
        known.append(one)
    return standing.winner


def test_a_setting_whose_first_steps_come_from_a_queue_does_not_win():
    def from_queue():
        """Eight batches are ready; then eight workers bring one each, all at the same time: 25 ms a step."""
        yield from [0.004] * 8
        while True:
            yield 8 * 0.025 - 7 * 0.004
            yield from [0.004] * 7

    others = [lambda step_s=0.02 + 0.002 * number: itertools.repeat(step_s) for number in range(11)]
    assert play_tuning([from_queue, *others]) == 1


def test_rare_long_steps_rarely_make_the_best_lose_or_another_win():
    draw = random.Random(3)

    def make(step_s, more_s=0.0, share=0.0):
        return lambda: iter(lambda: step_s * draw.uniform(1, 1.02) + more_s * (draw.random() < share), None)

    # 90 ms in the mean against 100, and 100 against 80.
    best = sum(play_tuning([make(0.1), make(0.1), make(0.1), make(0.06, 0.12, 0.25)]) == 3 for _ in range(50))
    assert best >= 40
    worse = sum(play_tuning([make(0.06, 0.4, 0.1), make(0.08), make(0.12)]) == 0 for _ in range(50))
    assert worse <= 7


def test_the_same_request_has_the_same_name_and_another_another(tmp_path):
    def name(*over, snapshots=None, **fields):
        sweep = tune_sweep.make_sweep(make_job(tmp_path, **fields), TuneRequest("throughput", over))
        return tune_sweep.name_after(sweep, snapshots or {})

    assert name("threads=1|2") == name("threads=1|2")
    others = {
        name("threads=1|2"),
        name("threads=1|4"),
        name("threads=1|2", snapshots={"code": "1"}),
        name("threads=1|2", environment_variables={"A": "1"}),
    }
    assert len(others) == 4


def test_a_property_that_no_tuning_has_written_is_refused():
    assert tuning.from_properties({"other": "x"}) is None
    for text in (
        "",
        "{",
        "[]",
        '{"metric": 1}',
        '{"settings": [[1]], "rungs": [], "targets": {}, "metric": ""}',
    ):
        with pytest.raises(SpecError, match="is no tuning"):
            tuning.from_properties({tuning.PROPERTY: text})


def test_a_trial_tells_its_spread_and_one_of_an_earlier_version_has_none():
    figures = {"metric": 5.0, "low": 4.0, "high": 6.0}
    details = ({**figures, "spread": 0.01}, figures, {})
    steps = [
        StepOutcome("trial", "job", 0.0, {"setting": number, "rung": 0, **detail})
        for number, detail in enumerate(details)
    ]
    for ended in steps[:2]:
        ended.status = "Completed"
    listed = tuning.list_measures(steps)
    assert [(one.setting, one.spread, one.is_over) for one in listed] == [
        (0, 0.01, True),
        (1, None, True),
        (2, None, False),
    ]


def test_the_slowest_rank_counts_and_the_figure_has_a_doubt():
    rate = reduce_steps([[0.1] * 10, [0.2] * 8])
    assert (rate.step_s, rate.steps, rate.ranks) == (pytest.approx(0.2), 8, 2)
    assert (rate.low_s, rate.high_s) == (pytest.approx(0.18), pytest.approx(0.22))
    assert rate.spread == pytest.approx(0.0)
    # Half of the steps are 2 % shorter, half 2 % longer: twice the standard error of their mean.
    assert reduce_steps([[0.098, 0.102] * 50]).spread == pytest.approx(0.004, rel=0.02)
    # Of few steps the chance is larger: Student's t of 4 degrees of freedom.
    few = [0.098, 0.102, 0.098, 0.102, 0.1]
    assert reduce_steps([few]).spread == pytest.approx(2.776 * 0.002 / 5**0.5 / 0.1, rel=0.01)
    assert reduce_steps([few[:4]]) is None
    # Two workers bring batches in pairs: the median is half of the truth, or twice of it.
    pairs = [0.001, 0.199] * 10 + [0.001]
    assert reduce_steps([pairs]).step_s == pytest.approx(0.0953, rel=0.01)
    assert reduce_steps([pairs]).high_s > 0.13
    assert reduce_steps([[0.1, 0.1, 0.1, 0.1, 9.9]], is_median=True).step_s == pytest.approx(0.1)
    assert reduce_steps([[0.1] * 10, [0.1] * 2]) is None
    assert reduce_steps([]) is None


def test_the_file_that_won_is_the_job_with_that_setting(tmp_path):
    job = make_job(tmp_path, display_name="small", code=".")
    made = find_tuning(tmp_path, "throughput", "procs=1|4,threads=1,batch=64", code=".")
    best = {"setting": made.params(1), "metric": 1234.5}
    values = {"name": "tune-x", "status": "Completed", "metric": made.metric, "best": best}
    path = tmp_path / "job.tuned.yml"
    tune_results.write_winner(job, made, values, str(path))
    assert path.read_text().splitlines()[0] == (
        "# Made by drumline tune (tune-x): procs 4, threads 1, batch 64: 1234 samples/s"
    )
    loaded = load_job(str(path))
    assert isinstance(loaded, Command)
    assert loaded.distribution is not None
    assert loaded.distribution.process_count_per_instance == 4
    assert loaded.environment_variables == {"OMP_NUM_THREADS": "1"}
    assert loaded.inputs["batch_size"] == 64
    assert loaded.command == job.command
    tune_results.check_target(str(path), is_named=False)
    path.write_text("command: mine\n")
    with pytest.raises(UsageError, match="was not made by drumline tune"):
        tune_results.check_target(str(path), is_named=False)
    tune_results.check_target(str(path), is_named=True)
    with pytest.raises(UsageError, match="cannot be written"):
        tune_results.check_target(str(tmp_path / "nowhere" / "x.yml"), is_named=True)


def test_a_comment_holds_no_control_characters_of_an_earlier_tuning(tmp_path):
    job = make_job(tmp_path)
    made = find_tuning(tmp_path, "throughput", "env:A=x|y")
    best = {"setting": {"env:A": "a\x1b[31mb"}, "metric": 1.0}
    values = {"name": "tune-x", "status": "Completed", "metric": made.metric, "best": best}
    path = tmp_path / "job.tuned.yml"
    tune_results.write_winner(job, made, values, str(path))
    assert path.read_text().splitlines()[0] == "# Made by drumline tune (tune-x): env:A ab: 1 samples/s"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("nowhere")])
def test_a_pipe_or_a_link_in_the_place_of_the_file_that_won_is_refused_at_once(tmp_path, make):
    path = tmp_path / "job.tuned.yml"
    make(path)
    with pytest.raises(UsageError, match="was not made by drumline tune"):
        tune_results.check_target(str(path), is_named=False)
    tune_results.check_target(str(path), is_named=True)


@pytest.fixture
def won(tmp_path, monkeypatch):
    """Run drumline tune, whose tuning has ended as soon as it began; ``meanwhile`` is called between."""

    def run(meanwhile, *words):
        made = find_tuning(tmp_path, "throughput", "batch_size=32|64")

        def follow(*_):
            meanwhile()
            outcome = Outcome()
            outcome.status = "Completed"
            return outcome

        def to_values(*_):
            row = {"setting": {"batch_size": 64}, "metric": 5.0, "step_s": 0.1, "steps": 20, "job": "job"}
            row |= {"ended": None, "is_own": False, "may_be_best": False}
            return {
                "metric": made.metric,
                "name": "tune-x",
                "status": "Completed",
                "reason": "",
                "best": row,
            } | {"settings": [{**row, "reason": ""}]}

        folder = tune_sweep.StartedTuning(RunFolder.for_job("tune-x"), tune_sweep.BEGINS)
        monkeypatch.setattr(tune_sweep, "start", lambda *_, **__: folder)
        monkeypatch.setattr(tune_sweep, "follow", follow)
        monkeypatch.setattr(tune_results, "read_tuning", lambda _: made)
        monkeypatch.setattr(tune_results, "to_values", to_values)
        over = ("--over", "batch_size=32|64", "-o", "table")
        return main(["tune", "-f", str(tmp_path / "job.yml"), "--for", "throughput", *over, *words])

    return run


def test_a_file_that_the_user_made_meanwhile_is_not_overwritten(tmp_path, won, capsys):
    path, other = tmp_path / "job.tuned.yml", tmp_path / "job.tuned.tune-x.yml"
    assert won(lambda: None) == 0
    path.unlink()
    capsys.readouterr()
    assert won(lambda: path.write_text("command: mine\n")) == 0
    assert path.read_text() == "command: mine\n"
    assert "batch_size: 64\n" in other.read_text()
    said = capsys.readouterr()
    assert f"written: {other}" in said.out
    assert (
        f"tune: {path} was made meanwhile, and not by drumline tune, so the job file that won is" in said.err
    )

    path.unlink()
    assert won(lambda: (path.write_text("mine"), other.write_text("mine too"))) == 2
    said = capsys.readouterr()
    assert "5 samples/s (best)" in said.out
    assert f"error: {other} is there, and was not made by drumline tune" in said.err
    assert (path.read_text(), other.read_text()) == ("mine", "mine too")


def test_figures_are_shown_where_the_file_that_won_cannot_be_written(tmp_path, won, capsys):
    folder = tmp_path / "made"
    folder.mkdir()
    assert won(folder.rmdir, "--write", str(folder / "won.yml")) == 1
    said = capsys.readouterr()
    assert "5 samples/s (best)" in said.out
    assert "written: " not in said.out
    assert "error: No such file or directory" in said.err
