"""What a page asks about a job besides lines and curves: use, lanes, stacks, variables, files and the queue."""

import json
import math
import os

import pytest
from made_jobs import MadeJob

from drumline.contract import events as e
from drumline.contract import samples
from drumline.contract.errors import DrumlineError, NotFoundError, UsageError
from drumline.control.access import stack_groups
from drumline.control.access.job_files import look_at, open_file
from drumline.control.assets import asset_verbs
from drumline.control.facts import history
from drumline.control.facts.history import read_system
from drumline.control.facts.job import describe_job
from drumline.control.facts.ranks import describe_ranks, describe_variables
from drumline.control.facts.start import describe_timeline, make_trace
from drumline.control.logs.line_queries import read_lines
from drumline.control.machine import queue_view
from drumline.spec.registered.assets import Data
from drumline.tracking.metrics import MetricFile


@pytest.fixture
def job(drumline_home):
    made = MadeJob()
    made.start()
    return made


def use(rank, cpu_s, memory=100, **rest):
    told = {
        "pid": 1,
        "peak": memory,
        "processes": 1,
        "threads": 1,
        "io": (0, 0, 0, 0),
        "gpus": {},
        "has_ended": False,
    }
    return samples.RankUse(rank=rank, cpu_s=cpu_s, memory=memory, **{**told, **rest})


def sample(job, node, at, *ranks, attempt=0, network=(0, 0), gpus=()):
    one = samples.Sample(
        at, attempt, at - 1001.0, 0.0, 4, (50, 1000), None, (0, 0), network, (0, 0), 1.0, ranks, gpus
    )
    path = samples.path_of(job.folder.path, node)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "ab") as file:
        file.write(samples.to_line(one))


def row(told, rank):
    return known(next(one.values for one in told.rows if one.rank == rank))


def known(values):
    """None for what is not known, as the page has it."""
    return [None if math.isnan(one) else one for one in values]


def end(job, at=1011.0):
    job.add(e.JobEnded(at, "Completed", 0, "fine"))


# use over time


def test_cpu_is_a_rate_and_memory_is_as_it_was(job):
    sample(job, 0, 1003.5, use(0, 2.5, 100), use(1, 0.0, 50))
    sample(job, 0, 1008.5, use(0, 2.5, 300), use(1, 5.0, 50))
    sample(job, 1, 1008.5, use(2, 7.5), use(3, 0.75))
    end(job)
    told = read_system(job.name, points=10)
    assert (told.begin, told.end, told.bin_s) == (
        "1970-01-01T00:16:41.000Z",
        "1970-01-01T00:16:51.000Z",
        1.0,
    )
    assert row(told, 0) == [100.0] * 3 + [0.0] * 5 + [None] * 2
    assert row(told, 1) == [0.0] * 3 + [100.0] * 5 + [None] * 2
    assert row(told, 3) == [10.0] * 8 + [None] * 2
    assert row(read_system(job.name, "memory", points=10), 0) == [100] * 3 + [300] * 5 + [None] * 2
    assert [one.key for one in told.measures] == ["cpu", "memory", "disk", "network", "log"]


def test_of_many_samples_in_a_bin_the_last_counts(job):
    for tenth in range(100):
        sample(job, 0, 1001.0 + tenth / 10, use(0, tenth / 10), use(1, 0.0))
    end(job)
    told = read_system(job.name, points=2)
    assert row(told, 0) == [pytest.approx(100, abs=1), pytest.approx(100, abs=3)]


def test_gpus_network_and_log_have_rows_of_their_own(job):
    gpu = samples.Gpu("0", "H100", 80, 10, 80_000, 300.0, 40)
    sample(job, 0, 1005.5, use(0, 1.0, gpus={"0": 9}), use(1, 1.0), network=(450, 0), gpus=(gpu,))
    job.log(1, "x" * 50 + "\n", at=1004.2)
    end(job)
    told = read_system(job.name, "gpu", points=10)
    assert row(told, 0)[:5] == [80.0] * 5
    assert row(told, 1) == [None] * 10
    assert "gpu" in [one.key for one in told.measures]
    (first, second) = read_system(job.name, "network", points=10).rows
    assert (first.rank, first.label, first.values[0]) == (None, "node 0", 100.0)
    assert known(second.values) == [None] * 10
    assert row(read_system(job.name, "log", points=10), 1) == [0.0] * 3 + [51.0] + [0.0] * 6


def test_samples_of_another_attempt_and_damaged_ones_are_left_out(job):
    sample(job, 0, 1003.5, use(0, 2.5))
    with open(samples.path_of(job.folder.path, 0), "ab") as file:
        file.write(b'{"t":1004.0,"a":0,"e":\n\xff\n')
    sample(job, 0, 1005.0, use(0, 100.0), attempt=7)
    end(job)
    assert row(read_system(job.name, points=10), 0) == [100.0] * 3 + [None] * 7


def test_what_happened_is_marked_and_nothing_is_known_before_the_ranks(job, drumline_home):
    job.add(e.RankExited(1005.0, 1, 0, 3, None), e.JobHung(1006.0, "ranks 0-2 wait"))
    marks = read_system(job.name).marks
    assert [(one.kind, one.text) for one in marks] == [
        ("running", "all ranks run"),
        ("failed", "rank 1 failed with exit code 3"),
        ("hang", "ranks 0-2 wait"),
    ]
    assert read_system(MadeJob("waiting").name).rows == ()
    with pytest.raises(UsageError, match="measure must be"):
        read_system(job.name, "colour")


def test_a_job_of_512_ranks_is_drawn_whole(drumline_home):
    big = MadeJob(nodes=16, procs=32)
    big.start()
    for node in range(16):
        ranks = range(node * 32, node * 32 + 32)
        for second in range(20):
            sample(big, node, 1001.0 + second, *(use(rank, second * 0.5) for rank in ranks))
    end(big, 1021.0)
    told = read_system(big.name, points=300)
    assert len(told.rows) == 512
    assert [one.rank for one in told.rows] == list(range(512))
    assert {value for one in told.rows for value in one.values[1:20]} == {50.0}


def test_of_all_samples_of_a_node_one_is_in_memory_at_a_time(job, monkeypatch):
    for second in range(5):
        sample(job, 0, 1001.5 + second, use(0, second), use(1, second))
    end(job)
    seen = []
    measure, read = history.MEASURES["network"], samples.from_line
    used = measure._replace(of_node=lambda one: seen.append("used") or measure.of_node(one))
    monkeypatch.setitem(history.MEASURES, "network", used)
    monkeypatch.setattr(samples, "from_line", lambda line: seen.append("read") or read(line))
    read_system(job.name, "network", points=10)
    # The newest says first which measures there are.
    assert seen == ["read", *["read", "used"] * 5]


# lanes


def test_a_timeline_has_a_lane_for_each_node_and_rank(job):
    job.add(
        e.FirstOutput(1002.0, 0, 0), e.GroupFormed(1003.0, 0, 0, "gloo"), e.RankExited(1010.0, 0, 0, 0, None)
    )
    end(job)
    lanes = {lane["label"]: lane for lane in describe_timeline(job.name).lanes}
    assert {"job", "node 0", "node 1", "rank 0", "rank 3"} <= set(lanes)
    phases = [(one["name"], one["ended"][-9:]) for one in lanes["rank 0"]["phases"]]
    assert phases == [("until first output", "6:42.000Z"), ("until process group", "6:43.000Z")]
    assert [one["name"] for one in lanes["rank 3"]["phases"]] == ["started"]
    trace = make_trace(job.name)["traceEvents"]
    rank = next(one["tid"] for one in trace if one["ph"] == "M" and one["args"]["name"] == "rank 0")
    spans = [(one["name"], one["ts"], one["dur"]) for one in trace if one["ph"] == "X" and one["tid"] == rank]
    assert spans == [
        ("until first output", 1_000_000, 1_000_000),
        ("until process group", 2_000_000, 1_000_000),
        ("running", 3_000_000, 7_000_000),
    ]
    json.dumps(trace)
    assert describe_timeline(job.name, 0).attempt == 0
    with pytest.raises(UsageError, match="no attempt"):
        describe_timeline(job.name, 1)


# variables


def test_variables_are_told_apart_and_secrets_are_hidden(drumline_home):
    job = MadeJob(
        environment_variables={"LR": "0.1", "WANDB_API_KEY": "abc123", "WHERE": "https://me:pw@x.org/a?sig=1"}
    )
    told = describe_variables(job.name)
    assert told.common["WORLD_SIZE"] == "4"
    assert told.common["LR"] == "0.1"
    assert told.common["WANDB_API_KEY"] == "(hidden)"
    assert "abc123" not in json.dumps(told)
    assert "pw@" not in json.dumps(told)
    differing = {one.name: one.values for one in told.differing}
    assert differing["RANK"] == [([rank], str(rank)) for rank in range(4)]
    assert differing["NODE_RANK"] == [([0, 1], "0"), ([2, 3], "1")]


def test_addresses_are_filled_in_when_they_are_known(job):
    assert describe_variables(job.name).common["MASTER_ADDR"] == "${node_0}"
    job.add(e.NetworkChosen(1001.0, ["eth0", "eth0"], ["10.0.0.4", "10.0.0.5"], "all reach it"))
    assert describe_variables(job.name).common["MASTER_ADDR"] == "10.0.0.4"


# stacks


def process(*frames, **rest):
    return {
        "pid": 1,
        "name": "python",
        "state": "S",
        "waits_in": "",
        "frames": [list(one) for one in frames],
        **rest,
    }


def test_ranks_at_one_place_are_together_and_the_odd_one_is_named(job, monkeypatch):
    waits = process(
        ("/usr/lib/python3/site-packages/torch/distributed/c10d.py", 9, "all_reduce"),
        ("train.py", 12, "step"),
    )
    answer = {
        "reason": "ranks 0, 1 wait; rank 3 is in load_batch",
        "ranks": {"0": [waits], "1": [waits], "3": [process(("data.py", 31, "load_batch"))]},
    }
    monkeypatch.setattr(stack_groups, "ask_stacks", lambda name: answer)
    told = stack_groups.group_stacks(job.name)
    assert [(one.ranks, one.odd, one.waits_for) for one in told.groups] == [
        ([0, 1], False, "all_reduce (train.py:12, in step)"),
        ([3], True, ""),
    ]
    assert told.groups[1].frames == [("data.py", 31, "load_batch")]
    assert told.missing == [(2, "its node has not answered")]


# files


def names(told):
    return [(one.name, one.kind) for one in told.entries]


def test_files_are_listed_and_read_beneath_their_folder_alone(job, tmp_path):
    outputs = job.folder.outputs
    os.makedirs(f"{outputs}/b/c")
    with open(f"{outputs}/a.txt", "w") as file:
        file.write("hello\n")
    with open(f"{outputs}/data.bin", "wb") as file:
        file.write(b"\0\1\2")
    (tmp_path / "secret").write_text("no")
    os.symlink(tmp_path / "secret", f"{outputs}/link")
    os.symlink(tmp_path, f"{outputs}/b/up")
    os.mkfifo(f"{outputs}/pipe")
    told = look_at(job.name, "outputs")
    assert names(told) == [
        ("b", "folder"), ("a.txt", "file"), ("data.bin", "file"), ("link", "link"), ("pipe", "other"),
    ]  # fmt: skip
    assert names(look_at(job.name, "outputs", "b")) == [("c", "folder"), ("up", "link")]
    assert look_at(job.name, "outputs", "a.txt").text == "hello\n"
    assert (look_at(job.name, "outputs", "data.bin").text, told.path) == (None, "")
    for path in ("link", "b/up", "b/up/secret", "pipe", "missing"):
        with pytest.raises(NotFoundError, match="cannot be shown"):
            look_at(job.name, "outputs", path)
    for path in ("../plan.json", "b/../../plan.json", "a\0b"):
        with pytest.raises(UsageError, match="leads nowhere"):
            look_at(job.name, "outputs", path)
    with open_file(job.name, "outputs", "/a.txt") as descriptor:
        assert os.read(descriptor, 100) == b"hello\n"
    for path in ("link", "b", ""):
        with pytest.raises(NotFoundError), open_file(job.name, "outputs", path):
            pass


def test_several_folders_of_an_area_are_folders_of_it(job):
    job.log(0, "one\n")
    with open(f"{job.folder.system_logs}/supervisor.log", "w") as file:
        file.write("began\n")
    told = look_at(job.name, "logs")
    assert names(told) == [("user_logs", "folder"), ("system_logs", "folder")]
    assert names(look_at(job.name, "logs", "system_logs")) == [("supervisor.log", "file")]
    assert look_at(job.name, "logs", "system_logs/supervisor.log").text == "began\n"


def test_an_area_without_anything_says_why(job):
    assert look_at(job.name, "inputs").why == "the job has no inputs"
    assert "not stored" in look_at(job.name, "code").why
    with pytest.raises(UsageError, match="area must be"):
        look_at(job.name, "home")


# queue


def test_an_empty_queue_is_told_and_nothing_is_made_for_it(drumline_home):
    told = queue_view.describe_queue()
    assert told.sentence.startswith("nothing runs or waits here")
    assert not drumline_home.exists()


# nodes and assets


def test_nodes_and_assets_of_a_new_home_are_this_machine_and_its_datastores(drumline_home):
    told = queue_view.describe_nodes()
    assert [(one.name, one.reason) for one in told.computes] == [("local", "")]
    assert told.nodes[0]["compute"] == "local"
    assert told.sentence.startswith("1 node of 1 compute")
    assert {one["kind"] for one in asset_verbs.list_assets()["assets"]} <= {"datastore"}
    assert asset_verbs.list_assets("model")["assets"] == []
    with pytest.raises(NotFoundError):
        asset_verbs.list_assets("model", "no_such_model")


def test_assets_are_listed_without_their_content(drumline_home, tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n")
    asset_verbs.create(
        Data(name="digits", path=str(tmp_path / "a.csv"), type="uri_file", tags={"of": "mnist"})
    )
    (found,) = asset_verbs.list_assets("data")["assets"]
    assert (found["name"], found["version"], found["type"], found["tags"]) == (
        "digits",
        "1",
        "uri_file",
        {"of": "mnist"},
    )
    assert found["created"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 99}', '{"nodes": [1]}'])
def test_a_damaged_plan_is_one_sentence(job, text):
    with open(job.folder.plan, "w") as file:
        file.write(text)
    for ask in (read_lines, describe_ranks, read_system, describe_variables):
        with pytest.raises(DrumlineError, match="the plan of job calm_drum cannot be read"):
            ask(job.name)
    assert look_at(job.name, "code").kind == "none"


# the head of a job's page


def test_the_head_of_a_page_reads_no_metrics_and_parses_events_once(job, monkeypatch):
    job.track()
    metrics_folder = os.path.join(job.run_dir, "metrics")
    os.makedirs(metrics_folder, exist_ok=True)
    with open(os.path.join(metrics_folder, "loss"), "w") as file:
        file.writelines(f"{1_700_000_000_000 + step} 0.5 {step}\n" for step in range(100))
    job.add(*(e.RankExited(1005.0, rank, rank // 2, 0, None) for rank in range(4)))
    job.add(e.JobEnded(1006.0, "Completed", 0, "all ranks completed"))
    monkeypatch.setattr(MetricFile, "read_more", pytest.fail)
    describe_job(job.name)  # Its metric is known from now on.
    parsed = []
    real = e.from_line
    monkeypatch.setattr(e, "from_line", lambda line: parsed.append(line) or real(line))
    told = describe_job(job.name)
    assert told["page"]["next"] == f"drumline job metrics -n {job.name}"
    assert told["row"].metric == ("loss", 0.5)
    with open(job.folder.events, "rb") as file:
        lines = len(file.readlines())
    assert len(parsed) == lines
    assert [one["began"] for one in told["attempts"]] == ["1970-01-01T00:16:41.000Z"]


def test_the_head_of_a_page_knows_that_a_job_wrote_outputs(job):
    os.makedirs(os.path.join(job.folder.outputs, "deep"))
    job.add(e.JobEnded(1006.0, "Completed", 0, "all ranks completed"))
    assert describe_job(job.name)["page"]["next"] == f"drumline job logs -n {job.name}"
    with open(os.path.join(job.folder.outputs, "deep", "model"), "w"):
        pass
    assert describe_job(job.name)["page"]["next"] == f"drumline job download -n {job.name} --all"
