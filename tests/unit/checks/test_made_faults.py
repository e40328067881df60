"""
Faults that are made for a process of this machine: gathered as on a node, and judged as before a job. Each check fires
on its fault, and not without it.
"""

import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import waiting
from isolated_nodes import skip_without

from drumline.checks import checker, cores_and_memory, gpus, registry
from drumline.checks.findings import NodeDemand, NodeReport
from drumline.contract.errors import EngineError
from drumline.contract.record import describe_record
from drumline.engines.local.isolation import inside, needs
from drumline.engines.local.isolation.isolation_settings import Link
from drumline.linux import interfaces, namespaces

DEADLINE_S = 120.0


def gather(group, settings=None, prepare=None):
    """The facts of one group, gathered in a process that ``prepare`` has spoiled."""
    return gather_side_by_side(group, {"one": (settings, prepare)})["one"]


def gather_side_by_side(group, cases):
    """The same of several processes that are there at once: by name, settings and what prepares it."""

    def make(settings, prepare):
        def gatherer(_):
            if prepare:
                prepare()
            return registry.GATHERERS[group](settings or {})

        return gatherer

    gatherers = {name: make(*case) for name, case in cases.items()}
    found = checker.gather(gatherers, {}, DEADLINE_S, gatherers)
    assert not any(checker.FAILED in facts or checker.LATE in facts for facts in found.values()), found
    return {name: {group: facts} for name, facts in found.items()}


def judge(check, *facts, demand=None):
    """What a check finds wrong of nodes with these facts: of each the node and the words."""
    wanted = demand or NodeDemand()
    reports = [NodeReport(node, f"n{node}", one, demand=wanted) for node, one in enumerate(facts)]
    chosen = [one for one in registry.CHECKS if one.id == check]
    found = registry.judge_all(reports, chosen)
    return [(one.node, one.finding) for one in found if one.status != "ok"]


def write_program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_python(tmp_path):
    write_program(tmp_path / "broken" / "python", "echo 'libpython3.so: cannot open' >&2; exit 127")
    write_program(tmp_path / "old" / "python", """echo '{"version": "3.8.10", "packages": {}}'""")
    sound = gather("python", {"python": sys.executable})
    assert judge("python", sound, sound) == []
    broken = gather("python", {"path": str(tmp_path / "broken")})
    place = tmp_path / "broken" / "python"
    assert judge("python", sound, broken) == [(1, f"{place} does not start: libpython3.so: cannot open")]
    missing = gather("python", {"path": str(tmp_path)})
    assert judge("python", sound, missing) == [(1, "there is no python on the search path")]
    old = gather("python", {"path": str(tmp_path / "old")})
    assert [said for node, said in judge("python", sound, sound, old) if node == 2] == [
        f"{tmp_path}/old/python is Python 3.8.10, older than 3.9",
        f"its Python is 3.8, and 3.{sys.version_info[1]} on nodes 0 and 1",
    ]


def test_interfaces(tmp_path):
    skip_without()

    def enter(name):
        def enter_network_of_its_own():
            inside.begin_namespaces()
            inside.run_batch("ip", ["link add docker0 type bridge"])
            interfaces.set_address("docker0", "172.17.0.1", "255.255.0.0")
            interfaces.set_up("docker0")
            # A namespace that is gone leaves its number to the next one.
            (tmp_path / name).touch()
            waiting.wait_until(lambda: all((tmp_path / one).exists() for one in names), 20)

        return enter_network_of_its_own

    names = ("one", "other")
    settings = {"address": "172.17.0.1"}
    cases = {name: (settings, enter(name)) for name in names}
    one, other = gather_side_by_side("network", cases).values()
    assert "172.17.0.1" in {found["address"] for found in one["network"]["interfaces"]}
    assert judge("interfaces", one, other) == [(None, "nodes 0 and 1 have the same address 172.17.0.1")]
    # A cluster for tests: one machine that plays two.
    assert judge("interfaces", one, one) == []
    other["network"]["address"] = "172.17.0.2"
    assert judge("interfaces", one, other) == []


def show_memory(tmp_path, available_mb):
    """Have a process see a machine of 64 GB."""
    told = tmp_path / f"meminfo-{available_mb}"
    told.write_text(f"MemTotal: 64000000 kB\nMemFree: 1000 kB\nMemAvailable: {available_mb}000 kB\n")

    def show():
        inside.begin_namespaces()
        namespaces.begin_mounts()
        namespaces.bind(str(told), "/proc/meminfo")

    return show


def test_mounts_of_a_chroot_cannot_be_a_nodes(tmp_path):
    skip_without()

    def try_in_chroot():
        if os.geteuid():
            namespaces.enter_new_user_namespace()
        # This has loaded what calls the kernel, of which there is nothing in the folder.
        namespaces.unshare(0)
        os.chroot(tmp_path)
        return needs._try(Link())

    with pytest.raises(EngineError, match="isolated nodes: / is no mount point here, as in a chroot"):
        inside.call_in_child(try_in_chroot)


def test_memory(tmp_path):
    skip_without()
    sound, full = (gather("memory", prepare=show_memory(tmp_path, size)) for size in (50_000, 100))
    demand = NodeDemand(memory_bytes=40_000_000_000)
    if sound["memory"]["limit"]:
        sound["memory"]["limit"] = full["memory"]["limit"] = None  # That of the tests themselves.
    assert judge("memory", sound, sound, demand=demand) == []
    ((node, said),) = judge("memory", sound, full, demand=demand)
    assert (node, said) == (1, "97.7 MiB of its memory is available, and the job was given 37.3 GiB")


def test_memory_of_a_control_group(tmp_path):
    groups = [line.split(":")[1].split(",") for line in Path("/proc/self/cgroup").read_text().splitlines()]
    if not any({"", "memory"} & set(names) for names in groups):
        pytest.skip("this process is in no control group for memory")
    (tmp_path / "memory").mkdir()
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        (tmp_path / name).write_text("104857600\n")
    limited, free = (
        {"memory": cores_and_memory.gather_memory({}, root=str(root))._replace(available=1 << 40)._asdict()}
        for root in (tmp_path, tmp_path / "none")
    )
    demand = NodeDemand(memory_bytes=200_000_000)
    assert judge("memory", free, limited, demand=demand) == [
        (1, "its memory is limited to 100 MiB, and the job was given 191 MiB")
    ]
    assert judge("memory", limited, demand=NodeDemand(memory_bytes=100_000_000)) == []


def test_features():
    before = os.readlink("/proc/self/ns/user")

    def refuse():
        namespaces.enter_new_user_namespace()
        assert os.readlink("/proc/self/ns/user") != before, "the limit of the machine stays as it is"
        Path("/proc/sys/user/max_user_namespaces").write_text("0")
        os.environ["DRUMLINE_CGROUP"] = "0"
        # Root needs none of its own.
        os.geteuid = lambda: 1000

    sound = gather("features")
    if not sound["features"]["user_namespaces"]:
        pytest.skip("this user may make no user namespaces")
    ((node, said),) = [one for one in judge("features", sound, gather("features", prepare=refuse)) if one[0]]
    assert node == 1
    assert "user namespaces (no isolated nodes)" in said
    assert "control groups (" in said
    told = "".join(said for _, said in judge("features", sound))
    assert "user namespaces" not in told
    assert ("control groups" in told) is not sound["features"]["control_group"]


def make_port(root, device, state="4: ACTIVE", link="InfiniBand", gid="fe80::1"):
    port = root / device / "ports" / "1"
    (port / "gids").mkdir(parents=True)
    for name, text in (("state", state), ("rate", "400 Gb/sec (4X NDR)"), ("link_layer", link)):
        (port / name).write_text(text + "\n")
    (port / "gids" / "0").write_text(gid + "\n")


def test_infiniband(tmp_path):
    make_port(tmp_path / "sound", "mlx5_0")
    make_port(tmp_path / "down", "mlx5_0", state="1: DOWN")
    make_port(tmp_path / "odd", "mlx5_2")
    make_port(tmp_path / "nameless", "mlx5_0", link="Ethernet", gid="0000:0000:0000:0000:0000:0000:0000:0000")
    sound, down, odd, nameless = (
        {"infiniband": describe_record(gpus.gather_infiniband({}, str(tmp_path / name)))}
        for name in ("sound", "down", "odd", "nameless")
    )
    assert judge("infiniband", sound, sound) == []
    assert judge("infiniband", sound, down) == [(1, "mlx5_0 port 1 is DOWN, not ACTIVE")]
    assert judge("infiniband", sound, odd) == [(1, "its InfiniBand devices are mlx5_2, and mlx5_0 on node 0")]
    assert judge("infiniband", sound, nameless) == [(1, "mlx5_0 port 1 has no GID")]
    none = {"infiniband": describe_record(gpus.gather_infiniband({}, str(tmp_path / "missing")))}
    assert judge("infiniband", none, none) == []


def make_environment(folder, version):
    """An environment with PyTorch's largest library, which is still to be written."""
    library = folder / "lib" / version / "site-packages" / "torch" / "lib" / "libtorch_cpu.so"
    library.parent.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    return library


def test_library_speed(tmp_path):
    # Of another Python than the agent's.
    library = make_environment(tmp_path / "sound", "python3.9")
    with library.open("wb") as file:
        file.truncate(16 << 20)
    sound = {"python": str(tmp_path / "sound" / "bin" / "python")}
    # A busy machine may read it slowly once.
    waiting.wait_until(lambda: judge("library-speed", gather("library", sound)) == [], 30)
    facts = gather("library", sound)["library"]
    assert (facts["path"], facts["rate"] > 0) == (str(library), True)

    library = make_environment(tmp_path / "slow", f"python3.{sys.version_info[1]}")
    os.mkfifo(library)
    program = "import sys, time\nwith open(sys.argv[1], 'wb') as file:\n"
    program += "    for _ in range(2):\n        file.write(bytes(1 << 20))\n        time.sleep(0.3)\n"
    with subprocess.Popen([sys.executable, "-c", program, str(library)]) as writer:
        try:
            slow = gather("library", {"python": str(tmp_path / "slow" / "bin" / "python")})
        finally:
            writer.kill()
    ((node, said),) = judge("library-speed", slow)
    assert (node, said.startswith("PyTorch's libraries are read at ")) == (0, True)
    assert judge("library-speed", gather("library", {"path": str(tmp_path)})) == []


def test_spawn(tmp_path):
    slow_python = write_program(tmp_path / "python", f'sleep 1.5\nexec "{sys.executable}" "$@"')

    def begin_slowly():
        sys.executable = str(slow_python)

    slow = gather("cpu", prepare=begin_slowly)

    def find_sound():
        # A busy machine starts programs slowly too.
        facts = gather("cpu")
        return facts if facts["cpu"]["spawn_s"] < 0.4 else None

    sound = waiting.wait_until(find_sound, 30)
    assert judge("spawn", sound, sound, sound) == []
    ((node, said),) = judge("spawn", sound, slow, sound)
    assert (node, "s to start, and 0." in said) == (1, True)


def test_leftovers(tmp_path):
    home = tmp_path / "home"
    scratch = tmp_path / "scratch"
    for name in ("drumline-00000001-n0", "drumline-00000002-n1"):
        (scratch / name).mkdir(parents=True)
        (scratch / name / "agent").touch()

    def look_there():
        os.environ["TMPDIR"] = str(scratch)

    def find():
        return gather("leftovers", {"home": str(home)}, look_there)

    program = [sys.executable, "-c", "print('up', flush=True); import sys; sys.stdin.read()"]
    # What an agent holds is no leftover, and neither are the jobs of other homes.
    with (
        open(scratch / "drumline-00000001-n0" / "agent") as held,
        subprocess.Popen(
            program,
            env={**os.environ, "DRUMLINE_RUN_FOLDER": str(home / "jobs" / "calm_drum")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as left,
    ):
        fcntl.flock(held, fcntl.LOCK_EX)
        left.stdout.readline()
        assert judge("leftovers", find()) == [
            (0, f"process {left.pid} of job calm_drum is left, whose supervisor is gone"),
            (0, f"1 folder of ended agents are left: {scratch}/drumline-00000002-n1"),
        ]
        left.stdin.close()
        left.wait()
        (scratch / "drumline-00000002-n1" / "agent").unlink()
        assert judge("leftovers", find()) == []


@pytest.fixture
def read_clock(monkeypatch):
    """The facts and times of a node whose clock differs by so much: its checker's answer, and when it was asked."""

    def read_clock(offset_s):
        clock = SimpleNamespace(
            time=lambda: time.time() + offset_s, monotonic=time.monotonic, sleep=time.sleep
        )
        monkeypatch.setattr(checker, "time", clock)
        ours, theirs = socket.socketpair()
        thread = threading.Thread(target=checker.serve, args=(theirs, 0, "127.0.0.1"))
        thread.start()
        with ours, ours.makefile("rb") as answers:
            asked = time.time()
            ours.sendall(b'{"part": "facts", "groups": [], "settings": {}, "deadline_s": 1}\n')
            facts = json.loads(answers.readline())["facts"]
            arrived = time.time()
        thread.join()
        return facts, arrived, asked

    return read_clock


def test_clocks(read_clock):
    def judge_clock(offset_s, late_s=0.0):
        facts, arrived, asked = read_clock(offset_s)
        reports = [NodeReport(0, "n0", {}), NodeReport(1, "n1", facts, arrived + late_s, asked)]
        (check,) = [one for one in registry.CHECKS if one.id == "clocks"]
        return [(one.node, one.finding) for one in check.compare(reports)]

    assert judge_clock(0.0) == []
    ((node, said),) = judge_clock(30.0)
    assert (node, said.endswith(" s ahead of that of the supervisor")) == (1, True)
    ((node, said),) = judge_clock(-3600.0)
    assert (node, said.endswith(" s behind that of the supervisor")) == (1, True)
    # An answer that was long on its way tells of no clock.
    assert judge_clock(0.0, late_s=60.0) == []
