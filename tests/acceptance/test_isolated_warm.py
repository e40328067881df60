"""Ranks on isolated nodes, forked from this machine's warm interpreters: they are on their nodes all the same."""

import json
import os
from pathlib import Path

import pytest
from cli_jobs import logs_of, one_rank, write_script
from isolated_nodes import (
    enter_folder_of_nobody,
    list_left,
    run_as_nobody,
    skip_without,
    write_compute,
)

# What modules ask at import, and keep: the machine's name.
ASKS = "import platform\nplatform.node()\n"
SEE = """
import json, os, platform, socket
import asks
rank = int(os.environ["RANK"])
with open("/dev/shm/mine", "w") as file:
    file.write("0")
with open("/proc/self/status") as file:
    status = dict(line.rstrip().split(":", 1) for line in file)
with open("/proc/self/cgroup") as file:
    groups = sorted(file)
with open("/proc/self/mountinfo") as file:
    mounts = sorted(line.split()[4] for line in file)
seen = {
    "host": socket.gethostname(),
    "again": platform.node(),
    "address": socket.gethostbyname(socket.gethostname()),
    "cards": sorted(os.listdir("/sys/class/net")),
    "shm": os.listdir("/dev/shm"),
    "tmp": os.statvfs(os.environ["TMPDIR"]).f_blocks,
    "spaces": [os.readlink(f"/proc/self/ns/{name}") for name in ("net", "uts", "ipc", "mnt")],
    "rights": [status[name].strip() for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", "Uid", "Gid")],
    "folder": os.path.basename(os.getcwd()),
    "mounts": len(mounts),
    "limits": [group.split(":")[1] for group in groups if group.rstrip().endswith(f"-n{rank}")],
}
print(json.dumps(seen))
"""


@pytest.fixture
def asks(tmp_path, monkeypatch):
    """An installed module to import ahead."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "asks.py").write_text(ASKS)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    return folder


def warm_starts(run_folder):
    events = [json.loads(line) for line in (run_folder / "events.jsonl").read_text().splitlines()]
    assert [one for one in events if one["type"] == "WarmDeclined"] == []
    return [one for one in events if one["type"] == "WarmStart"]


def test_warm_ranks_see_what_cold_ones_see_and_jobs_share_their_interpreter(
    cli, asks, tmp_path, drumline_home
):
    settings = {"shm_size": "32m", "tmp_size": "16m"}
    skip_without(**settings)
    assert cli("compute", "create", "-f", write_compute(tmp_path, **settings)).rc == 0
    fields = one_rank(resources={"instance_count": 2}, compute="azureml:lab")
    write_script(tmp_path, SEE, **fields)
    seen, starts = {}, {}
    for name, warm in (("cold", "off"), ("first", "on"), ("second", "on")):
        done = cli("job", "create", "-f", "job.yml", "-n", name, "--warm", warm, "--stream")
        assert done.rc == 0, done.out + done.err
        seen[name] = [json.loads(log) for log in logs_of(drumline_home / "jobs" / name)]
        starts[name] = warm_starts(drumline_home / "jobs" / name)
        assert list_left(drumline_home / "jobs" / name) == []
    assert [one["host"] for one in seen["cold"]] == ["lab-0", "lab-1"]
    ours = {os.readlink(f"/proc/self/ns/{name}") for name in ("net", "uts", "ipc", "mnt")}
    for ranks in seen.values():
        spaces = {space for one in ranks for space in one.pop("spaces")}
        assert len(spaces - ours) == 2 * len(ours)
    assert seen["first"] == seen["second"] == seen["cold"]
    assert starts["cold"] == []
    assert len({one["pid"] for one in (*starts["first"], *starts["second"])}) == 1
    assert [one["reused"] for one in starts["second"]] == [True, True]


@pytest.mark.root
def test_a_warm_rank_is_under_the_limits_of_its_node(cli, asks, tmp_path, drumline_home):
    settings = {"nodes": 1, "memory": "200m"}
    skip_without(**settings)
    assert cli("compute", "create", "-f", write_compute(tmp_path, **settings)).rc == 0
    fields = one_rank(compute="azureml:lab", resources={"instance_count": 1}, drumline={"warm": "on"})
    write_script(tmp_path, 'import asks\nb"x" * (400 << 20)\n', **fields)
    done = cli("job", "create", "-f", "job.yml", "--stream")
    assert done.rc == 1, done.err
    assert "for memory had run out" in done.out
    assert len(warm_starts(drumline_home / "jobs" / "job")) == 1


@pytest.mark.root
def test_warm_ranks_of_an_ordinary_user_have_no_more_rights_than_cold_ones():
    skip_without()
    with enter_folder_of_nobody() as (folder, python):
        packages = Path(folder) / "site-packages"
        packages.mkdir()
        (packages / "asks.py").write_text(ASKS)
        (Path(folder) / "see.py").write_text(SEE)
        words = [python, "-m", "drumline", "run", "--nodes", "2", "--isolate", "--no-prefix"]
        seen = {}
        try:
            for name, warm in (("cold", "off"), ("warm", "on")):
                command = [*words, "--name", name, "--warm", warm, "--", python, "see.py"]
                done = run_as_nobody(command, folder, str(packages))
                assert done.returncode == 0, done.stderr
                seen[name] = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        finally:
            run_as_nobody([python, "-m", "drumline", "warm", "stop"], folder, str(packages))
        assert len(warm_starts(Path(folder) / "home" / "jobs" / "warm")) == 2
        for ranks in seen.values():
            ranks.sort(key=lambda one: one["host"])
            assert len({space for one in ranks for space in one.pop("spaces")}) == 8
        assert seen["warm"] == seen["cold"]
