"""What the studio's server tells about jobs that ran: ranks, lines, curves, use, files, parts, and the machine."""

import json
import shutil
from pathlib import Path

import pytest
from cli_jobs import CORES, two_by_two, write_job, write_script
from make_home import HOME
from studio_server import API, run_studio
from waiting import wait_until

OLD = Path(__file__).parents[1] / "homes" / "0.1"

SCRIPT = """
    import os, time
    from drumline.v1 import Run

    rank = os.environ["RANK"]
    for step in range(30):
        print(f"step {step} of rank {rank}", flush=True)
        if rank == "0":
            Run.get_context().log("loss", 1.0 / (step + 1))
    os.makedirs("outputs", exist_ok=True)
    with open(f"outputs/rank-{rank}.txt", "w") as file:
        file.write("done")
    if rank == "3":
        while not all(os.path.exists(f"outputs/rank-{other}.txt") for other in range(3)):
            time.sleep(0.05)
        raise ValueError("no more data")
"""


@pytest.fixture
def ran(cli, tmp_path):
    path = write_script(tmp_path, SCRIPT, environment_variables={"MY_API_KEY": "hunter2"})
    assert cli("job", "create", "-f", path, "--stream").rc == 1


def test_a_job_that_failed_is_told_in_all_its_parts(ran):
    with run_studio() as studio:
        ranks = studio.get("/jobs/job/ranks")
        assert ranks["ranks"][3]["state"] == "failed_first"
        assert ranks["ranks"][3]["last_line"] == "ValueError: no more data"
        assert "rank 3 on node 1 failed first" in ranks["sentence"]
        assert [node["ranks"] for node in ranks["nodes"]] == [[0, 1], [2, 3]]

        logs = studio.get("/jobs/job/logs?ranks=3")
        assert [line["text"] for line in logs["lines"][:2]] == ["step 0 of rank 3", "step 1 of rank 3"]
        assert logs["lines"][logs["first_error"]]["text"] == "Traceback (most recent call last):"
        everything = studio.get("/jobs/job/logs?line=-1&count=1")
        assert everything["total"] > 120
        only = studio.get("/jobs/job/logs?q=no+more&ranks=3&context=1")["lines"]
        assert [line.get("context", False) for line in only][-1] is False
        found = studio.get("/jobs/job/logs/search?q=step+%5B2%5D9+of&regex=1")
        assert sorted(match["rank"] for match in found["matches"]) == [0, 1, 2, 3]
        assert "Traceback" in studio.get("/jobs/job/logs/divergence?rank=3")["sentence"]
        raw = studio.ask(f"{API}/jobs/job/logs/raw?rank=1")
        assert raw.data.startswith(b"step 0 of rank 1\n")
        assert raw.headers["content-disposition"].startswith("attachment")

        assert [one["name"] for one in studio.get("/jobs/job/metrics")["metrics"]] == ["loss"]
        (curve,) = studio.get("/series?jobs=job&metrics=lo*&points=10")["series"]
        assert (curve["count"], curve["max"][0]) == (30, 1.0)

        system = studio.get("/jobs/job/system?points=20")
        assert [row["rank"] for row in system["rows"]] == [0, 1, 2, 3]
        assert any(mark["text"].startswith("rank 3 failed") for mark in system["marks"])
        assert "rank 3" in [lane["label"] for lane in studio.get("/jobs/job/timeline")["lanes"]]
        trace = studio.ask(f"{API}/jobs/job/timeline/trace")
        assert json.loads(trace.data)["traceEvents"]

        environment = studio.ask(f"{API}/jobs/job/environment")
        assert b"hunter2" not in environment.data
        assert environment.json["common"]["WORLD_SIZE"] == "4"
        plan = studio.ask(f"{API}/jobs/job/plan")
        assert b"hunter2" not in plan.data
        assert plan.json["plan"]["user_env"]["MY_API_KEY"] == "(hidden)"

        assert [one["name"] for one in studio.get("/jobs/job/code")["entries"]] == ["train.py"]
        assert "no more data" in studio.get("/jobs/job/code?path=train.py")["text"]
        assert [one["name"] for one in studio.get("/jobs/job/files?area=outputs")["entries"]][:1] == [
            "rank-0.txt"
        ]
        content = studio.ask(f"{API}/jobs/job/files/content?area=outputs&path=rank-0.txt")
        assert content.data == b"done"
        assert content.headers["content-disposition"].startswith("attachment")
        assert "sandbox" in content.headers["content-security-policy"]

        assert studio.get("/diff?a=job&b=job")["spec"] == []
        assert studio.get("/queue")["running"] == []
        assert studio.get("/nodes")["nodes"]
        assert studio.get("/assets?kind=data")["assets"] == []


def test_what_is_wrong_is_one_sentence(ran):
    with run_studio() as studio:
        for path, status in (
            ("/jobs/none/ranks", 404),
            ("/jobs/job/ranks?attempt=7", 400),
            ("/jobs/job/logs?ranks=99", 400),
            ("/jobs/job/logs?count=0", 400),
            ("/jobs/job/logs/search?q=", 400),
            ("/jobs/job/logs/search?q=(&regex=1", 400),
            ("/jobs/job/logs/raw?rank=77", 400),
            ("/series?jobs=none", 404),
            ("/series?jobs=job&x=colour", 400),
            ("/jobs/job/system?measure=colour", 400),
            ("/jobs/job/files?path=../plan.json", 400),
            ("/jobs/job/files?area=home", 400),
            ("/jobs/job/files/content?area=logs&path=none", 404),
            ("/jobs/job/graph", 400),
            ("/jobs/job/trials", 400),
            ("/diff?a=job", 400),
            ("/assets?kind=shoes", 400),
        ):
            answer = studio.ask(API + path)
            assert (answer.status, bool(answer.json["error"]["message"])) == (status, True), path
        ended = studio.post("/jobs/job/stacks", {})
        assert (ended.status, "no ranks that run" in ended.json["error"]["message"]) == (400, True)


def test_running_ranks_are_asked_where_they_are(cli, tmp_path):
    code = "import os, time; print('ready', flush=True)\nwhile not os.path.exists('end'): time.sleep(0.1)"
    path = write_job(tmp_path, f'python -c "{code}"', name="job", **two_by_two(drumline={"grace": 1}))
    assert cli("job", "create", "-f", path).rc == 0
    with run_studio() as studio:

        def all_run():
            ranks = studio.get("/jobs/job/ranks")["ranks"]
            return [(one["state"], one["last_line"]) for one in ranks] == [("running", "ready")] * 4

        wait_until(all_run, 20.0, "all ranks to be ready")
        assert [one["name"] for one in studio.get("/queue")["running"]] == ["job"]
        told = studio.post("/jobs/job/stacks", {})
        assert told.status == 200, told.data
        assert sorted(rank for group in told.json["groups"] for rank in group["ranks"]) == [0, 1, 2, 3]
        assert told.json["missing"] == []
        assert cli("job", "cancel", "-n", "job").rc == 0
        wait_until(lambda: studio.get("/jobs/job")["row"]["status"] == "Canceled", 20.0, "the job to end")
        assert {one["state"] for one in studio.get("/jobs/job/ranks")["ranks"]} == {"stopped"}


@pytest.fixture
def old(drumline_home):
    """A copy of a home that an earlier version wrote."""
    shutil.copytree(OLD, drumline_home, symlinks=True)
    for path in drumline_home.rglob("*"):
        if path.is_file() and not path.is_symlink() and HOME in (text := path.read_text()):
            path.write_text(text.replace(HOME, str(drumline_home)))


def test_pipelines_sweeps_and_attempts_of_an_earlier_version(old):
    with run_studio() as studio:
        graph = studio.get("/jobs/pipeline/graph")
        assert graph["edges"] == [["train", "use"]]
        assert [(one["name"], one["status"]) for one in graph["nodes"]] == [
            ("train", "Completed"),
            ("use", "Completed"),
        ]
        trials = studio.get("/jobs/sweep/trials")
        assert [one["parameters"] for one in trials["trials"]] == [{"lr": 0.1}, {"lr": 0.2}]
        assert trials["parameters"] == [{"name": "lr", "kind": "number"}]
        assert trials["best"] == trials["trials"][0]["name"] == "sweep_0"
        assert studio.get("/jobs/pipeline/ranks")["ranks"] == []
        assert studio.get("/jobs/pipeline/logs")["total"] == 0
        before = studio.get("/jobs/preempted/ranks?attempt=0")
        row = studio.get("/jobs/preempted")["row"]
        assert (before["attempt"], before["attempts"], row["most_attempts"]) == (0, 2, None)
        assert {one["state"] for one in before["ranks"]} == {"stopped"}
        assert {one["state"] for one in studio.get("/jobs/preempted/ranks")["ranks"]} == {"completed"}
        assert studio.get("/jobs/preempted/logs?attempt=0&ranks=0")["lines"][0]["text"] == "step 0 of rank 0"
        assert studio.get("/jobs/completed/system")["rows"]
        assert [one["name"] for one in studio.get("/jobs/completed/metrics")["metrics"]] == ["loss"]


def test_a_job_that_waits_says_for_what_and_behind_whom(cli, tmp_path):
    code = "import os, time; print('ready', flush=True)\nwhile not os.path.exists('end'): time.sleep(0.1)"
    all_cores = {"resources": {"instance_count": 1}, "limits": {"timeout": 3600}}
    distribution = {"type": "pytorch", "process_count_per_instance": CORES}
    for name in ("first", "second"):
        path = write_job(
            tmp_path,
            f'python -c "{code}"',
            name=name,
            distribution=distribution,
            drumline={"grace": 1},
            **all_cores,
        )
        assert cli("job", "create", "-f", path).rc == 0
    with run_studio() as studio:
        queue = wait_until(lambda: (told := studio.get("/queue"))["waiting"] and told, 20.0, "a job to wait")
        assert [one["name"] for one in queue["running"]] == ["first"]
        (waiting,) = queue["waiting"]
        assert (waiting["name"], waiting["position"], waiting["cores"]) == ("second", 1, CORES)
        assert "held by job first" in waiting["sentence"]
        assert queue["sentence"].startswith("1 job runs, 1 waits; second is next: waiting for ")
        assert queue["free"]["cores"] == 0
        for name in ("second", "first"):
            assert cli("job", "cancel", "-n", name).rc == 0
        wait_until(lambda: not studio.get("/queue")["running"], 20.0, "the queue to be empty")
