"""
Jobs that are submitted below a shell of level 0, as cron, systemd and a command of ssh do: no bash of theirs takes
itself for started over the network, and reads ``~/.bashrc``.
"""

import json
import os
import shutil

import pytest
from cli_jobs import write_job
from programs import first_lines

BASHRC = "echo bashrc was read\nexport FROM_BASHRC=1 PATH=/usr/bin:/bin\n"

SEEN = """
import json, os
kind = os.readlink("/proc/self/fd/0").partition(":")[0]
seen = {"input": kind, "bashrc": os.environ.get("FROM_BASHRC"), "path": os.environ["PATH"]}
"""
RANK = (
    SEEN
    + 'rank = os.environ.get("RANK") or os.environ["AZUREML_CR_NODE_RANK"]\n'
    + 'with open(f"{os.environ[\'DRUMLINE_RUN_FOLDER\']}/seen-{rank}.json", "w") as file: json.dump(seen, file)\n'
)

RAY = (
    first_lines()
    + SEEN
    + """
import signal, socket, sys
with open(f"{os.environ['DRUMLINE_RUN_FOLDER']}/seen-ray-{os.environ['AZUREML_CR_NODE_RANK']}.json", "w") as file:
    file.write(json.dumps(seen))
ports = [int(word.partition("=")[2]) for word in sys.argv if word.startswith("--port=")]
servers = [socket.create_server(("", port)) for port in ports]
signal.pause()
"""
)
RAY_MODULE = """
import os
def init(**options): pass
def nodes():
    folder, hosts = os.environ["DRUMLINE_RUN_FOLDER"], os.environ["AZ_BATCH_HOST_LIST"].split(",")
    return [{"Alive": os.path.exists(seen := f"{folder}/seen-ray-{node}.json") and os.path.getsize(seen),
             "NodeManagerAddress": host}
            for node, host in enumerate(hosts)]
def shutdown(): pass
"""

DISTRIBUTIONS = {
    "none": {},
    "pytorch": {"type": "pytorch", "process_count_per_instance": 1},
    "mpi": {"type": "mpi", "process_count_per_instance": 1},
    "tensorflow": {"type": "tensorflow", "worker_count": 2},
    "ray": {"type": "ray"},
}


@pytest.mark.parametrize("level", ["0", None])
@pytest.mark.parametrize("kind", DISTRIBUTIONS)
def test_no_process_of_a_job_reads_bashrc(kind, level, cli, tmp_path, drumline_home, monkeypatch):
    if kind == "mpi" and shutil.which("mpirun") is None:
        pytest.skip("needs an MPI; scripts/test installs openmpi-bin as root")
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text(BASHRC)
    monkeypatch.setenv("HOME", str(home))
    if level is None:
        monkeypatch.delenv("SHLVL", raising=False)
    else:
        monkeypatch.setenv("SHLVL", level)
        # With it a bash of level 1 believes this whatever its input is.
        monkeypatch.setenv("SSH_CLIENT", "192.0.2.1 50000 22")
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "ray").write_text(RAY)
    (folder / "ray").chmod(0o755)
    (folder / "ray.py").write_text(RAY_MODULE)
    (folder / "see.py").write_text(RANK)
    path = f"{folder}:{os.environ['PATH']}"
    done = cli(
        "job",
        "create",
        "-f",
        write_job(
            tmp_path,
            "python see.py",
            name="job",
            code=str(folder),
            resources={"instance_count": 2},
            **({"distribution": DISTRIBUTIONS[kind]} if DISTRIBUTIONS[kind] else {}),
        ),
        "--stream",
        env={"PATH": path, "PYTHONPATH": str(folder)},
        timeout_s=100,
    )
    assert done.rc == 0, done.out + done.err
    assert "bashrc was read" not in done.out
    seen = [json.loads(file.read_text()) for file in (drumline_home / "jobs" / "job").glob("seen-*.json")]
    assert len(seen) == (3 if kind == "ray" else 2)
    for one in seen:
        assert one["bashrc"] is None
        assert one["path"].endswith(path)
        assert one["input"] == "/dev/null"


@pytest.mark.parametrize(("given", "kind"), [("echo given |", "pipe"), ("</dev/null", "/dev/null")])
def test_the_input_of_a_command_on_another_node_is_no_socket(given, kind, cli, tmp_path, monkeypatch):
    """Without level and variables of its own, a bash there has only its input to judge by."""
    (tmp_path / ".bashrc").write_text(BASHRC)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SHLVL", raising=False)
    there = "readlink /proc/self/fd/0; env -i HOME=$HOME bash -c cat"
    line = f"{given} ssh 127.0.0.2 '{there}'" if "|" in given else f"ssh 127.0.0.2 '{there}' {given}"
    done = cli("run", "--nodes", "2", "--once", "--", "sh", "-c", line, cwd=tmp_path)
    assert done.rc == 0, done.err
    said = done.out.splitlines()
    assert said[0].partition(":")[0] == kind
    assert said[1:] == (["given"] if kind == "pipe" else [])
