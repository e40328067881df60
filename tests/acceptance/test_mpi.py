"""Ranks that a real MPI's launcher starts, and what becomes of the job when something of it dies."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli_jobs import background, status_of, wait_for_status, write_job
from waiting import wait_until

from drumline.control.facts import description

pytest.importorskip("mpi4py", reason="MPI's tests need mpi4py, which scripts/test installs")
if shutil.which("mpirun") is None:
    pytest.skip("MPI's tests need an MPI; scripts/test installs openmpi-bin as root", allow_module_level=True)
VERSION = subprocess.check_output(["mpirun", "--version"], text=True)
if re.search(r"Open MPI\) (?:[6-9]|\d\d)", VERSION):
    pytest.skip("Open MPI 6 connects no two nodes that share a machine's network", allow_module_level=True)

TWO_BY_TWO = {
    "distribution": {"type": "mpi", "process_count_per_instance": 2},
    "resources": {"instance_count": 2},
}
FAULTS = Path(__file__).parents[1] / "jobs" / "mpi_faults.py"
DAEMONS = {"orted", "prted", "hydra_pmi_proxy"}
LAUNCHERS = {"mpirun", "prterun", "mpiexec", "mpiexec.hydra"}


def write_program(folder, command, text, **fields):
    code = folder / "code"
    code.mkdir()
    (code / "job.py").write_text(text)
    return write_job(folder, command, code=str(code), name="job", **{**TWO_BY_TWO, **fields})


def log_of(home, rank):
    """Empty until the rank has become its program: it has begun a moment before."""
    log = home / "jobs" / "job" / "user_logs" / f"std_log_process_{rank:02d}.txt"
    return log.read_text() if log.exists() else ""


PROBE = """
import json, os, sys
from mpi4py import MPI
world = MPI.COMM_WORLD
shown = {name: value for name, value in os.environ.items()}
shown["total"] = world.allreduce(world.rank)
shown["mpi"] = [world.rank, world.size]
shown["cores"] = sorted(os.sched_getaffinity(0))
shown["parent"] = os.getppid()
print(json.dumps(shown))
"""


def test_every_name_of_a_rank_agrees_with_mpi(cli, tmp_path, drumline_home):
    done = cli("job", "create", "-f", write_program(tmp_path, "python job.py", PROBE), "--stream")
    assert (done.rc, done.err) == (0, "")
    for rank in range(4):
        seen = json.loads(log_of(drumline_home, rank))
        node, local_rank = divmod(rank, 2)
        assert seen["mpi"] == [rank, 4]
        assert seen["total"] == 6
        for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"):
            assert seen[name] == str(rank), name
        for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"):
            assert seen[name] == "4", name
        # Open MPI's name for the rank within a node sounds like the node's, and is not.
        for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK"):
            assert seen[name] == str(local_rank), name
        for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"):
            assert seen[name] == "2", name
        for name in ("NODE_RANK", "GROUP_RANK", "AZUREML_CR_NODE_RANK"):
            assert seen[name] == str(node), name
        assert seen["MASTER_ADDR"] == seen["AZ_BATCHAI_MPI_MASTER_NODE"]
        assert seen["AZ_BATCH_MASTER_NODE"] == f"{seen['MASTER_ADDR']}:{seen['MASTER_PORT']}"
        assert seen["NCCL_SOCKET_IFNAME"]


def test_ranks_are_children_of_their_agents_and_pinned_to_nothing(cli, tmp_path, drumline_home):
    done = cli("job", "create", "-f", write_program(tmp_path, "exec python job.py", PROBE), "--stream")
    assert done.rc == 0
    plan = json.loads((drumline_home / "jobs" / "job" / "plan.json").read_text())
    agents = [
        event["pid"]
        for line in (drumline_home / "jobs" / "job" / "events.jsonl").read_text().splitlines()
        if (event := json.loads(line))["type"] == "AgentJoined"
    ]
    for rank in range(4):
        seen = json.loads(log_of(drumline_home, rank))
        assert seen["parent"] in agents
        assert seen["cores"] == plan["nodes"][rank // 2]["cores"]


NEIGHBOURS = """
from mpi4py import MPI
world = MPI.COMM_WORLD
node = world.Split_type(MPI.COMM_TYPE_SHARED)
print(sorted(node.allgather(world.rank)), flush=True)
"""
NO_HOST_NAMES = ("unshare", "-Ur", "sh", "-c", 'echo 0 >/proc/sys/user/max_uts_namespaces && exec "$@"', "sh")
"""What follows may give the machine no other name, as in a container."""


@pytest.mark.parametrize("before", [(), NO_HOST_NAMES], ids=["", "without-names-of-hosts"])
def test_nodes_of_one_machine_are_two_to_mpi(tmp_path, drumline_home, before):
    """It tells them by the names of their hosts; whoever asks it for the ranks of a node must get those two."""
    if before and subprocess.run([*before, "true"], check=False).returncode:
        pytest.skip("this user may make no user namespaces")
    if before and re.search(r"Open MPI\) [^1-4]", VERSION):
        pytest.skip("Open MPI 5 tells nodes by host names alone")
    job = write_program(tmp_path, "python job.py", NEIGHBOURS)
    words = (*before, sys.executable, "-m", "drumline", "job", "create", "-f", job, "--stream")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert [log_of(drumline_home, rank).strip() for rank in range(4)] == ["[0, 1]"] * 2 + ["[2, 3]"] * 2


def test_nodes_of_one_machine_are_two_to_a_users_own_mpirun(cli, tmp_path):
    words = ("mpirun", "-n", "4", "--bind-to", "none", "python", "-c", NEIGHBOURS)
    done = cli("run", "--nodes", "2", "--procs", "2", "--once", "--", *words, cwd=tmp_path)
    # Their output goes through mpirun, which may put two writes of one together.
    assert (done.rc, done.out.count("[0, 1]"), done.out.count("[2, 3]")) == (0, 2, 2), done.err


def test_on_one_node(cli, tmp_path, drumline_home):
    job = write_program(tmp_path, "python job.py", PROBE, resources={"instance_count": 1})
    assert cli("job", "create", "-f", job).rc == 0
    wait_for_status("job", "Completed")
    seen = json.loads(log_of(drumline_home, 1))
    assert seen["mpi"] == [1, 2]
    # The guide's script reads it on one node, and tells by the absence of the other that it is one.
    assert seen["AZ_BATCHAI_MPI_MASTER_NODE"] == seen["MASTER_ADDR"]
    assert "AZ_BATCH_MASTER_NODE" not in seen


def test_the_launchers_own_settings_are_the_users(cli, tmp_path, drumline_home):
    job = write_program(
        tmp_path, "python job.py", PROBE, environment_variables={"OMPI_MCA_mpi_yield_when_idle": "0"}
    )
    assert cli("job", "create", "-f", job, "--stream").rc == 0
    assert json.loads(log_of(drumline_home, 3))["OMPI_MCA_mpi_yield_when_idle"] == "0"


OTHER_LIBRARY = """
import mmap, os, time
with open("libmpich.so.12.4.1") as file:
    library = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("loaded", flush=True)
deadline = time.monotonic() + 60
while not os.path.exists("go") and time.monotonic() < deadline:
    time.sleep(0.05)
"""


def test_ranks_that_load_another_mpi_than_their_launchers_are_warned_of(cli, tmp_path):
    """Each would be a world of one rank, and end with 0. Where two MPIs are installed, mpi4py takes either."""
    job = write_program(tmp_path, "python job.py", OTHER_LIBRARY)
    (tmp_path / "code" / "libmpich.so.12.4.1").write_bytes(bytes(4096))
    assert cli("job", "create", "-f", job).rc == 0
    wait_until(lambda: description.show_job("job").get("warnings"), 60, "the warning")
    (Path(description.show_job("job")["run_folder"]) / "code" / "go").touch()
    ended = wait_for_status("job", "Completed")
    (warning,) = ended["warnings"]
    assert "these 4 processes may be as many MPI worlds: mpirun is Open MPI's, and rank " in str(warning)
    assert "has loaded libmpich.so.12.4.1 of MPICH; MPI4PY_MPIABI=openmpi " in str(warning)


# What fails


@pytest.mark.parametrize(
    ("how", "reason", "code"),
    [
        ("exit", r"rank 2 on node 1 failed first, [\d.]+ s in: exit code 3; ranks 0-1 and 3 ", 3),
        ("abort", r"rank 2 on node 1 failed first, [\d.]+ s in: exit code 5; ranks 0-1 and 3 ", 5),
        ("kill", r"rank 2 on node 1 failed( first,)? [\d.]+ s in: killed by signal 9 \(SIGKILL", 137),
        (
            "unfinished",
            r"rank 2 on node 1 ended early, [\d.]+ s in, with exit code 0 and without MPI_Finalize",
            1,
        ),
    ],
)
def test_a_rank_that_ends_badly_ends_all(cli, tmp_path, how, reason, code):
    done = cli(
        "job", "create", "-f", write_program(tmp_path, f"python job.py {how}", FAULTS.read_text()), "--stream"
    )
    assert done.rc == 1
    described = description.show_job("job")
    assert re.search(reason, described["reason"])
    assert described["exit_code"] == code


WAITED_FOR = """
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    raise ValueError("bad batch")
MPI.COMM_WORLD.Barrier()
"""


def test_a_rank_that_waits_in_mpi_finalize_is_told_by_its_exception(cli, tmp_path):
    hangs = {"hang_after": 4, "hang_action": "end", "grace": 1}
    # With a core for each, MPI spins.
    one_each = {"type": "mpi", "process_count_per_instance": 1}
    job = write_program(tmp_path, "python job.py", WAITED_FOR, drumline=hangs, distribution=one_each)
    assert cli("job", "create", "-f", job, "--stream").rc == 1
    reason = description.show_job("job")["reason"]
    # As a failure where MPI spins, which is no sure hang; else as a hang, which is noticed sooner.
    assert re.search(
        r"rank 1 on node 1 failed first, .*ValueError: bad batch \(job\.py:4"
        r"|it hung: .*rank 1 raised ValueError: bad batch \(job\.py:4\) but did not end",
        reason,
    ), reason


def test_a_rank_that_waits_in_mpi_finalize_ends_the_job_without_mpi4pys_own_help(cli, tmp_path):
    """At the usual ``hang_after``, which would take minutes."""
    hangs = {"hang_action": "end", "grace": 1}
    job = write_program(tmp_path, "python job.py", WAITED_FOR, drumline=hangs)
    assert cli("job", "create", "-f", job, "--stream").rc == 1
    reason = description.show_job("job")["reason"]
    assert re.match(
        r"rank 1 on node 0 failed first, .*ValueError: bad batch \(job\.py:4, in <module>\)", reason
    )


def processes_below(pid):
    below = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            below += [int(child), *processes_below(child)]
    return below


def named(pids, names):
    """Those of the processes that are a program of that name."""
    found = []
    for pid in pids:
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        if name in names:
            found.append(pid)
    return found


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        (LAUNCHERS, r"mpirun was killed by signal 9 \(SIGKILL"),
        (DAEMONS, r"daemon"),
    ],
    ids=["mpirun", "daemon"],
)
def test_a_launcher_or_daemon_that_is_killed_ends_all(cli, tmp_path, drumline_home, names, reason):
    job = write_program(tmp_path, "python job.py wait", FAULTS.read_text())
    assert cli("job", "create", "-f", job).rc == 0
    wait_until(
        lambda: status_of("job") == "Running"
        and all("waits" in log_of(drumline_home, rank) for rank in range(4)),
        30,
        "all ranks to wait",
    )
    supervisor = description.show_job("job")["processes"]["supervisor"]
    os.kill(named(processes_below(supervisor), names)[0], signal.SIGKILL)
    ended = wait_for_status("job", "Failed")
    assert re.search(reason, ended["reason"])


def test_ranks_have_their_grace_before_mpirun_ends_them(tmp_path, drumline_home):
    """The last thing they do may be a collective, for which they need one another and their daemons."""
    job = write_program(tmp_path, "exec python job.py grace", FAULTS.read_text())
    with background("job", "create", "-f", job, "--stream", cwd=tmp_path) as create:
        create.wait_for_output("waits", 4)
        with background("job", "cancel", "-n", "job", cwd=tmp_path) as cancel:
            assert cancel.end() == 0
        assert create.end() == 1
        assert create.out.count("saved together") == 4
    assert status_of("job") == "Canceled"


def shared_memory():
    return {path.name for path in Path("/dev/shm").glob("*segment*")}


def test_shared_memory_goes_with_a_launcher_that_is_killed(cli, tmp_path, drumline_home):
    """On one node Open MPI has files there, which nobody removes when it is killed."""
    before = shared_memory()
    job = write_program(tmp_path, "python job.py wait", FAULTS.read_text(), resources={"instance_count": 1})
    assert cli("job", "create", "-f", job).rc == 0
    wait_until(
        lambda: status_of("job") == "Running"
        and all("waits" in log_of(drumline_home, rank) for rank in range(2)),
        30,
        "both ranks to wait",
    )
    supervisor = description.show_job("job")["processes"]["supervisor"]
    os.kill(named(processes_below(supervisor), LAUNCHERS)[0], signal.SIGKILL)
    wait_for_status("job", "Failed")
    wait_until(lambda: not named([supervisor], {"drumline-job"}), 20, "the supervisor's end")
    assert shared_memory() <= before


def test_a_command_of_a_rank_on_another_node_is_no_daemon(cli, tmp_path):
    command = "if [ $RANK = 0 ]; then ssh 127.0.0.2 'exit 3' </dev/null; echo code $?; fi"
    job = write_job(tmp_path, command, **TWO_BY_TWO)
    done = cli("job", "create", "-f", job, "--stream")
    assert done.rc == 0, done.out
    assert "code 3" in done.out


def test_a_folder_for_temporary_files_with_a_blank_in_its_name(cli, tmp_path):
    folder = tmp_path / "t b"
    folder.mkdir()
    job = write_job(tmp_path, "true", **TWO_BY_TWO)
    done = cli("job", "create", "-f", job, "--stream", env={"TMPDIR": str(folder)})
    assert done.rc == 0, done.out
    assert not list(folder.iterdir())


def test_a_daemon_that_cannot_start_is_told_with_its_reason(cli, tmp_path):
    """As where MPICH is not installed on all nodes."""
    folder = tmp_path / "mpi"
    folder.mkdir()
    (folder / "mpirun").write_text(
        "#!/bin/sh\n[ $1 != --version ] || { echo 'HYDRA build details:'; echo 'Version: 4.2'; exit; }\n"
        "drumline-daemon 127.0.0.2 /none/hydra_pmi_proxy --x </dev/null\n"
    )
    (folder / "mpirun").chmod(0o755)
    job = write_job(tmp_path, "true", **TWO_BY_TWO)
    done = cli("job", "create", "-f", job, "--stream", env={"PATH": f"{folder}:/usr/bin:/bin"})
    reason = (
        r"the daemon of mpirun on node 1 exited with code 127 \(.*hydra_pmi_proxy: No such file or directory"
    )
    assert re.search(reason + r" \.\.\. see .+/system_logs/mpirun\.log\)\nnext: drumline job show", done.out)


# What is refused


def test_without_an_mpi_the_job_is_refused_with_what_to_install(cli, tmp_path):
    job = write_job(tmp_path, "python train.py", **TWO_BY_TWO)
    empty = tmp_path / "empty"
    empty.mkdir()
    done = cli("job", "create", "-f", job, env={"PATH": str(empty)})
    assert done.rc == 2
    assert "mpi needs an MPI, and there is no mpirun or mpiexec on the PATH" in done.err
    assert "openmpi-bin" in done.err


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("mpirun (Open MPI) 1.10.2", "Open MPI 1.10 is too old; 4.0 or newer is needed"),
        ("HYDRA build details:\n    Version:      3.1.4", "MPICH 3.1 is too old; 3.3 or newer"),
        ("a program of another kind", "there is no mpirun or mpiexec on the PATH"),
    ],
)
def test_an_mpi_that_is_too_old_is_refused(cli, tmp_path, said, message):
    folder = tmp_path / "old"
    folder.mkdir()
    for program in ("mpirun", "mpiexec"):
        (folder / program).write_text(f"#!/bin/sh\nprintf '%s' '{said}'\n")
        (folder / program).chmod(0o755)
    job = write_job(tmp_path, "python train.py", **TWO_BY_TWO)
    done = cli("job", "create", "-f", job, env={"PATH": str(folder)})
    assert done.rc == 2
    assert message in done.err


def test_scripts_that_only_read_the_variables_need_no_mpi(cli, tmp_path, drumline_home):
    text = "import os, json; print(json.dumps(dict(os.environ)))"
    job = write_program(tmp_path, "python job.py", text, drumline={"mpi": "environment"})
    assert cli("job", "create", "-f", job, "--stream", env={"PATH": "/usr/sbin:/bin"}).rc == 0
    for rank in range(4):
        seen = json.loads(log_of(drumline_home, rank))
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
        assert [seen[f"OMPI_COMM_WORLD_{name}"] for name in names] == [str(rank), "4", str(rank % 2), "2"]
        assert "PMIX_RANK" not in seen


def test_a_rank_that_no_launcher_starts_is_no_rank(tmp_path, drumline_home):
    """The shim of a rank, called by a rank: there is no such rank to start any more."""
    text = "import subprocess, os; print(subprocess.run([os.environ['DRUMLINE_BIN'] + '/drumline-rank']).returncode)"
    job = write_program(tmp_path, "python job.py", text, resources={"instance_count": 1})
    with background("job", "create", "-f", job, "--stream", cwd=tmp_path) as create:
        assert create.end() == 1
    assert "where it does not belong" in description.show_job("job")["reason"]


def test_without_a_job_file(cli, tmp_path):
    program = "from mpi4py import MPI; print(MPI.COMM_WORLD.rank, 'of', MPI.COMM_WORLD.size)"
    sizes = ("--nodes", "2", "--procs", "2", "--distribution", "mpi")
    done = cli("run", *sizes, "--", "python", "-c", program, cwd=tmp_path)
    assert done.rc == 0
    assert sorted(line.partition("] ")[2] for line in done.out.splitlines()) == [
        f"{rank} of 4" for rank in range(4)
    ]


def test_a_users_own_mpirun_needs_no_ssh(cli, tmp_path):
    """Run once, on node 0; its daemon on the other node is started by an agent."""
    program = "mpirun -n 4 --bind-to none sh -c 'echo $OMPI_COMM_WORLD_RANK on $AZUREML_CR_NODE_RANK'"
    done = cli("run", "--nodes", "2", "--procs", "2", "--once", "--", "sh", "-c", program, cwd=tmp_path)
    assert done.rc == 0, done.err
    # Open MPI warns where the daemon that it has started is quicker than its own next step.
    said = [line for line in done.out.splitlines() if not re.search("plm:[rs]sh: Warning: setpgid", line)]
    assert sorted(said) == ["0 on 0", "1 on 0", "2 on 1", "3 on 1"]


def test_a_users_own_mpirun_is_quoted_by_its_explanation(cli, tmp_path):
    """Open MPI writes it between rulers, of which the last is the last line."""
    words = ("--nodes", "2", "--procs", "2", "--once", "--", "mpirun", "-n", "8", "true")
    done = cli("run", *words, cwd=tmp_path)
    assert done.rc == 1
    assert 'after it said "There are not enough slots available in the system to satisfy the 8 ' in done.err


def test_a_users_own_mpirun_runs_programs_of_mpi(cli, tmp_path):
    """Two nodes of one name: Open MPI must not take them for one, and give their ranks the same shared memory."""
    program = "from mpi4py import MPI; world = MPI.COMM_WORLD; print(world.allreduce(world.rank), flush=True)"
    words = ("mpirun", "-n", "4", "--bind-to", "none", "python", "-c", program)
    done = cli("run", "--nodes", "2", "--procs", "2", "--once", "--", *words, cwd=tmp_path)
    # Their output goes through mpirun, which may put two writes of one together.
    assert (done.rc, sorted(done.out)) == (0, ["\n"] * 4 + ["6"] * 4), done.err
