"""What every engine does alike: one job file, one meaning, wherever its nodes come from."""

import ipaddress
import json
import re
import shutil

import pytest
from slurm_jobs import SAVES, WAITS

from drumline import MLClient, load_job
from drumline.control.jobs import lookup

pytestmark = pytest.mark.timeout(240)

PROBE = """
    import json, os, pathlib, socket
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
             "AZUREML_NODE_COUNT", "AZUREML_RUN_ID", "AZ_BATCH_MASTER_NODE", "NCCL_SOCKET_IFNAME", "MINE")
    shown = {name: os.environ[name] for name in names}
    shown["slurm"] = [name for name in os.environ if name.startswith("SLURM_")]
    shown["read"] = pathlib.Path(os.environ["AZURE_ML_INPUT_data"]).read_text()
    pathlib.Path(os.environ["AZURE_ML_OUTPUT_model"], f"{shown['RANK']}.txt").write_text("weights")
    pathlib.Path("outputs", f"{shown['RANK']}.txt").write_text("artifact")
    if shown["RANK"] == "0":
        with socket.create_server((shown["MASTER_ADDR"], int(shown["MASTER_PORT"]))):
            pass
    print(json.dumps(shown))
"""


def test_ranks_have_their_coordinates_inputs_and_outputs(job, tmp_path):
    (tmp_path / "data.txt").write_text("digits")
    done = job.create(
        PROBE,
        "--stream",
        inputs={"data": {"type": "uri_file", "path": "data.txt", "mode": "download"}},
        outputs={"model": {"type": "uri_folder"}},
        environment_variables={"MINE": "yes"},
    )
    assert done.rc == 0, done.out + done.err
    seen = [json.loads(log) for log in job.logs()]
    assert [one["RANK"] for one in seen] == ["0", "1", "2", "3"]
    assert [one["LOCAL_RANK"] for one in seen] == ["0", "1", "0", "1"]
    assert [one["NODE_RANK"] for one in seen] == ["0", "0", "1", "1"]
    ipaddress.ip_address(seen[0]["MASTER_ADDR"])
    for one in seen:
        assert (one["WORLD_SIZE"], one["LOCAL_WORLD_SIZE"], one["AZUREML_NODE_COUNT"]) == ("4", "2", "2")
        assert one["AZ_BATCH_MASTER_NODE"].startswith(one["MASTER_ADDR"] + ":")
        assert (one["MASTER_ADDR"], one["MASTER_PORT"]) == (seen[0]["MASTER_ADDR"], seen[0]["MASTER_PORT"])
        assert (one["MINE"], one["read"], one["AZUREML_RUN_ID"], one["slurm"]) == ("yes", "digits", "job", [])
    assert sorted(path.name for path in (job.path / "outputs").iterdir()) == [f"{n}.txt" for n in range(4)]
    assert len(list((job.path / "named-outputs" / "model").iterdir())) == 4
    for rank in range(4):
        assert f"[{rank}|node-{rank // 2}] " in done.out
    assert job.show()["exit_code"] == 0
    kinds = job.kinds_of_events()
    assert (kinds[0], kinds[-1]) == ("JobSubmitted", "JobEnded")
    assert (kinds.count("AgentJoined"), kinds.count("RankExited")) == (2, 4)


def test_a_rank_that_fails_is_named_with_its_node_and_line(job):
    done = job.create(
        """
        import os, signal
        if os.environ["RANK"] == "2":
            raise ValueError("loss is nan")
        signal.pause()
        """,
        "--stream",
    )
    assert done.rc == 1
    shown = job.show()
    assert (shown["status"], shown["failed_rank"], shown["failed_node"], shown["exit_code"]) == (
        "Failed",
        2,
        1,
        1,
    )
    where = r"rank 2 on node 1( \(e\d\))? failed first, .* in: ValueError: loss is nan \(train.py:4"
    assert re.match(where, shown["reason"]), shown["reason"]
    assert "ranks 0-1 and 3 were then stopped" in shown["reason"]
    assert shown["reason"] in done.out


def test_a_program_that_is_not_there(job):
    done = job.create("", "--stream", command="./nothing-of-that-name")
    assert done.rc == 1
    assert job.show()["exit_code"] == 127


def test_a_canceled_job_has_its_grace(job, cli):
    job.begin(SAVES)
    assert cli("job", "cancel", "-n", "job").rc == 0
    shown = job.show()
    assert (shown["status"], shown["exit_code"]) == ("Canceled", 130)
    assert {path.read_text() for path in (job.path / "outputs").iterdir()} == {"1 signal"}


def test_a_time_limit(job):
    done = job.create(WAITS, "--stream", limits={"timeout": 1})
    assert done.rc == 1
    shown = job.show()
    assert (shown["status"], shown["exit_code"]) == ("Canceled", 124)
    assert "time limit of 1 s" in shown["reason"]


def test_a_job_in_line_says_why_and_is_canceled_there(job, cli, tmp_path):
    job.engine.fill(cli, tmp_path)
    done = job.create(WAITS, queue_settings={"job_tier": "standard"})
    assert done.rc == 0, done.err
    shown = job.wait_for("Queued")
    assert shown["reason"]
    assert cli("job", "cancel", "-n", "job").rc == 0
    shown = job.show()
    assert (shown["status"], shown["exit_code"]) == ("Canceled", 130)
    assert re.fullmatch("canceled by .* before it started", shown["reason"])
    assert "RankStarted" not in job.kinds_of_events()
    job.engine.empty(cli)


def test_a_preempted_job_goes_on_with_what_it_saved(job, cli):
    job.begin(SAVES)
    assert cli("job", "preempt", "-n", "job").rc == 0
    job.engine.start_now("job")
    shown = job.wait_for_end()
    assert (shown["status"], shown["attempt"]) == ("Completed", 1), shown["reason"]
    assert [attempt["kind"] for attempt in shown["attempts"]] == ["preemption"]
    assert job.logs() == ["goes on after 1 signal in attempt 1\n"] * 4
    assert "ready" in (job.path / "user_logs" / "attempt-0" / "std_log_process_00.txt").read_text()


def test_ranks_that_failed_are_started_again(job):
    done = job.create(
        """
        import os, sys
        sys.exit(os.environ["DRUMLINE_ATTEMPT"] == "0" and os.environ["RANK"] == "3")
        """,
        "--stream",
        drumline={"max_restarts": 1},
    )
    assert done.rc == 0, done.out
    assert [attempt["kind"] for attempt in job.show()["attempts"]] == ["failure"]
    assert "is started again; attempt 0 failed: rank 3 on node 1" in done.err


def test_where_the_ranks_are(job, cli):
    # Who waits for a signal is not disturbed, and shown by py-spy alone, which not every pod has.
    job.begin(WAITS.replace("signal.pause()", "time.sleep(1000)").replace("import signal", "import time"))
    done = cli("job", "stacks", "-n", "job")
    assert done.rc == 0, done.err
    assert "train.py:4" in done.out
    assert cli("job", "cancel", "-n", "job", "--at-once").rc == 0


def test_from_python(job, tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print('trained')\n")
    (tmp_path / "job.yml").write_text("name: job\ncode: src\ncommand: python train.py\n")
    submitted = load_job(tmp_path / "job.yml")
    submitted.compute = job.engine.compute
    client = MLClient()
    client.jobs.create_or_update(submitted)
    client.jobs.stream("job")
    assert client.jobs.get("job").status == "Completed"


@pytest.mark.skipif(
    shutil.which("mpirun") is None, reason="there is no mpirun; scripts/test installs openmpi-bin"
)
def test_mpi_reaches_the_other_node_without_ssh(job):
    pytest.importorskip("mpi4py", reason="MPI's tests need mpi4py, which scripts/test installs")
    done = job.create(
        """
        from mpi4py import MPI
        world = MPI.COMM_WORLD
        print("sum", world.allreduce(world.rank), "of", world.size)
        """,
        "--stream",
        distribution={"type": "mpi", "process_count_per_instance": 2},
    )
    assert done.rc == 0, done.out + done.err
    # Nothing else, such as Open MPI's complaint of a folder that another node has.
    assert job.logs() == ["sum 6 of 4\n"] * 4


def test_a_job_of_another_home_is_not_found(job, cli, tmp_path):
    assert cli("job", "show", "-n", "job", env={"DRUMLINE_HOME": str(tmp_path / "other")}).rc == 3
    assert lookup.all_names() == []
