"""The facts of a machine: each fault is made for one process alone, in a fake tree, by limits or variables."""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from importlib.metadata import version

import pytest
import waiting

from drumline.checks import (
    checker,
    cores_and_memory,
    folders,
    gpus,
    names_and_ports,
    orphans,
    registry,
    software,
    system,
)
from drumline.contract.record import describe_record


def gather_one(name, settings=None, deadline_s=60.0, prepare=None):
    """The facts of one group, gathered in a process that ``prepare`` may spoil."""

    def gatherer(given):
        if prepare:
            prepare()
        return registry.GATHERERS[name](given)

    return checker.gather([name], settings or {}, deadline_s, {name: gatherer})[name]


def test_facts_of_this_machine_are_json_and_none_fails():
    settings = {"paths": {"folder": os.getcwd()}, "shared": [os.getcwd()], "code": os.path.dirname(__file__)}
    facts = checker.gather(registry.GATHERERS, settings, 120.0)
    json.dumps(facts)
    assert facts.keys() == registry.GATHERERS.keys()
    assert [name for name, group in facts.items() if checker.FAILED in group or checker.LATE in group] == []


def test_a_gatherer_that_hangs_costs_its_own_facts_alone(tmp_path):
    noted = tmp_path / "pid"

    def hang(_):
        noted.write_text(str(os.getpid()))
        child = subprocess.Popen(["sleep", "600"])
        noted.with_name("child").write_text(str(child.pid))
        time.sleep(600)

    def crash(_):
        os.abort()

    def fail(_):
        raise OSError("no such device")

    kinds = {"hangs": hang, "crashes": crash, "fails": fail, "works": lambda _: {"it": 1}}
    facts = checker.gather(kinds, {}, 6.0, kinds)
    # On a busy machine it may have waited for a core as well.
    assert list(facts["hangs"]) in ([checker.LATE], [checker.FAILED])
    assert facts["works"] == {"it": 1}
    assert facts["crashes"] == {checker.FAILED: "its process was killed"}
    assert "no such device" in facts["fails"][checker.FAILED]
    for name in ("pid", "child"):
        pid = int(noted.with_name(name).read_text())
        waiting.wait_until(lambda pid=pid: is_gone(pid))


def test_what_computes_or_waits_for_a_core_at_the_deadline_is_not_said_to_hang():
    def compute(_):
        while True:
            pass

    facts = checker.gather(["computes"], {}, 3.0, {"computes": compute})
    assert list(facts["computes"]) == [checker.FAILED]


def test_an_answer_that_was_there_before_the_deadline_counts_however_late_it_is_read(monkeypatch):
    start = checker._start

    def start_and_wait(*given):
        one = start(*given)
        # The deadline is over by then, as where this process gets no core.
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        return one

    monkeypatch.setattr(checker, "_start", start_and_wait)
    assert checker.gather(["works"], {}, 0.0, {"works": lambda _: {"it": 1}}) == {"works": {"it": 1}}


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_limits_are_those_of_the_process():
    facts = gather_one("limits", prepare=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)))
    assert facts["nofile"] == 200


def test_a_disk_that_cannot_be_written_to_says_why(tmp_path):
    def lower():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    folder = {"paths": {"run folder": str(tmp_path)}}
    assert gather_one("disk", folder)["folders"][0]["error"] == ""
    assert gather_one("disk", folder)["folders"][0]["write_s"] >= 0
    assert "File too large" in gather_one("disk", folder, prepare=lower)["folders"][0]["error"]
    missing = {"paths": {"run folder": str(tmp_path / "missing")}}
    assert "No such file" in gather_one("disk", missing)["folders"][0]["error"]
    assert os.listdir(tmp_path) == []


def test_a_shared_path_that_is_missing_is_waited_for_and_told(tmp_path):
    found = folders.gather_shared({"shared": [str(tmp_path), str(tmp_path / "missing")]}).paths
    assert [one.error for one in found] == ["", "No such file or directory"]
    assert found[0].inode == os.stat(tmp_path).st_ino


def test_quota_and_memory_limit_of_both_versions_of_control_groups(tmp_path):
    for name, text in (
        ("cpu.max", "150000 100000"),
        ("memory.max", "1000000"),
        ("cpu/cpu.cfs_quota_us", "-1"),
        ("cpu/cpu.cfs_period_us", "100000"),
        ("memory/memory.limit_in_bytes", "9223372036854771712"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with open("/proc/self/cgroup") as file:
        is_two = any(line.startswith("0::") for line in file)
    assert cores_and_memory.gather_cpu({}, str(tmp_path)).quota == (1.5 if is_two else None)
    assert cores_and_memory.gather_memory({}, root=str(tmp_path)).limit == (1_000_000 if is_two else None)


def test_shared_memory_is_measured_where_it_is(tmp_path):
    facts = cores_and_memory.gather_memory({}, shared=str(tmp_path))
    about = os.statvfs(tmp_path)
    assert facts.shared_total == about.f_blocks * about.f_frsize
    assert "No such file" in cores_and_memory.gather_memory({}, shared=str(tmp_path / "missing")).shared_error


def test_gpus_are_those_of_nvidia_smi(tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho '0, 550.54, 70000, 2, Not Active, Active, No'\n")
    program.chmod(0o755)
    found = gpus.gather_gpus({"path": str(tmp_path)}).gpus
    assert [(gpu["driver_version"], gpu["memory.used"]) for gpu in found] == [("550.54", "70000")]
    assert gpus.gather_gpus({"path": "/nowhere"}) == gpus.GpuFacts()
    program.write_text(
        "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n"
    )
    assert "version mismatch" in gpus.gather_gpus({"path": str(tmp_path)}).error


def test_infiniband_ports_are_read_from_the_tree(tmp_path):
    port = tmp_path / "mlx5_0" / "ports" / "1"
    (port / "gids").mkdir(parents=True)
    for name, text in (("state", "1: DOWN"), ("rate", "40 Gb/sec (4X QDR)"), ("link_layer", "Ethernet")):
        (port / name).write_text(text + "\n")
    (port / "gids" / "0").write_text("0000:0000:0000:0000:0000:0000:0000:0000\n")
    found = gpus.gather_infiniband({}, str(tmp_path)).ports
    assert describe_record(found) == [
        {
            "device": "mlx5_0",
            "port": "1",
            "state": "DOWN",
            "rate": "40 Gb/sec (4X QDR)",
            "link": "Ethernet",
            "gids": 0,
        }
    ]
    assert gpus.gather_infiniband({}, str(tmp_path / "missing")).ports == []


def test_a_name_that_nobody_knows_is_told_with_its_time():
    facts = names_and_ports.gather_names({"host_names": ["no-such-host.invalid"]}).looked_up
    assert facts[0].name == socket.gethostname()
    # On a busy machine the first may take long, and the rest is left out.
    assert len(facts) == 2 or facts[0].seconds > 0.5
    assert all(one.error and one.seconds >= 0 for one in facts[1:])


def test_one_look_up_that_takes_long_is_enough(monkeypatch):
    asked = []

    def look_up(place, flags):
        asked.append(place[0])
        assert flags == socket.NI_NAMEREQD
        if len(asked) == 2:
            began = time.monotonic()
            waiting.wait_until(lambda: time.monotonic() > began + 0.6)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getnameinfo", look_up)
    addresses = [f"10.0.0.{number}" for number in range(1, 9)]
    found = names_and_ports.gather_reverse({"addresses": addresses}).looked_up
    assert [one.address for one in found] == asked == addresses[: len(asked)]
    assert (len(found) <= 2, found[-1].seconds > 0.5) == (True, True)


def test_who_holds_the_default_port_is_named():
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(("127.0.0.1", 29500))
        except OSError:
            pytest.skip("another process has port 29500")
        held.listen()
        assert f"process {os.getpid()}" in names_and_ports.gather_network({}).default_port


def test_proxies_are_told_by_name_and_not_by_value(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://user:secret@proxy:3128")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/cert.pem")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    facts = names_and_ports.gather_proxies({})
    assert (facts.spares_loopback, facts.missing_certificates) == (False, ["SSL_CERT_FILE"])
    assert "http_proxy" in facts.proxies
    assert "secret" not in str(facts)
    monkeypatch.setenv("no_proxy", "localhost, 127.0.0.1")
    assert names_and_ports.gather_proxies({}).spares_loopback


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("mpirun (Open MPI) 5.0.7\n\nReport bugs to https://www.open-mpi.org/\n", "mpirun (Open MPI) 5.0.7"),
        ("HYDRA build details:\n    Version:             4.2.1\n    Release Date: x\n", "MPICH 4.2.1"),
    ],
)
def test_an_mpi_is_named_with_its_version(tmp_path, said, found):
    (tmp_path / "mpirun").write_text(f"#!/bin/sh\nprintf '{said}'\n")
    (tmp_path / "mpirun").chmod(0o755)
    assert software.gather_python({"path": str(tmp_path)}).mpi == found


def test_the_mpi_that_mpi4py_loads_is_seen(tmp_path, monkeypatch):
    (tmp_path / "mpi4py-4.0.0.dist-info").mkdir()
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("class rc: initialize = True\n")
    library = tmp_path / "libmpich.so.12.4.1"
    library.write_bytes(bytes(4096))
    (tmp_path / "mpi4py" / "MPI.py").write_text(
        "import mmap, mpi4py\n"
        "if mpi4py.rc.initialize: raise SystemExit('this would start a daemon')\n"
        f"file = open({str(library)!r})\n"
        "kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    settings = {"python": sys.executable, "path": os.environ["PATH"]}
    assert software.gather_python(settings).mpi_libraries == ["libmpich.so.12.4.1"]
    (tmp_path / "mpi4py" / "MPI.py").write_text("raise RuntimeError('cannot load MPI library')")
    facts = software.gather_python(settings)
    assert (facts.mpi_libraries, facts.packages["mpi4py"]) == ([], "4.0.0")


def test_versions_are_those_of_the_ranks_python(tmp_path, monkeypatch):
    for name in (
        "torch-9.9.9+cpu.dist-info", "nvidia_nccl_cu99-2.21.5.dist-info", "Horovod-0.1-py3.11.egg-info",
        "torchvision-1.0.dist-info", "jax", "ray-1.txt",
    ):  # fmt: skip
        (tmp_path / name).mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    facts = software.gather_python({"python": sys.executable, "path": os.environ["PATH"]})
    expected = {"torch": "9.9.9+cpu", "nvidia-nccl-cu99": "2.21.5", "horovod": "0.1"}
    assert {name: facts.packages.get(name) for name in expected} == expected
    assert "torchvision" not in facts.packages
    monkeypatch.setenv("PYTHONPATH", "")
    # As importlib.metadata says of the packages that are installed.
    assert software.gather_python({"python": sys.executable}).packages["numpy"] == version("numpy")
    assert facts.version == ".".join(map(str, sys.version_info[:3]))
    assert software.gather_python({"path": str(tmp_path)}).python == ""


def test_code_is_compared_by_content(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        (folder / "__pycache__").mkdir(parents=True)
        (folder / "train.py").write_text("print(1)\n")
    (first / "__pycache__" / "train.py").write_text("of one machine")
    (second / "checkpoint.pt").write_text("of one machine")
    digests = [software.gather_code({"code": str(folder)}).digest for folder in (first, second)]
    assert digests[0] == digests[1]
    (second / "train.py").write_text("print(2)\n")
    assert software.gather_code({"code": str(second)}).digest != digests[0]


def test_leftovers_are_processes_of_a_job_that_nobody_looks_after(tmp_path):
    run_folder = str(tmp_path / "calm_drum")
    program = [sys.executable, "-c", "print('up', flush=True); import sys; sys.stdin.read()"]
    with subprocess.Popen(
        program,
        env={**os.environ, "DRUMLINE_RUN_FOLDER": run_folder},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        found = [one for one in orphans.list_orphans() if one.folder == run_folder]
        assert [(one.pid, one.job) for one in found] == [(process.pid, "calm_drum")]
        process.stdin.close()
    assert [one for one in orphans.list_orphans() if one.folder == run_folder] == []


def test_features_are_found_out_without_a_trace():
    facts = gather_one("features")
    assert facts["pidfd"]
    assert isinstance(facts["user_namespaces"], bool)
    assert system.gather_user({}).uid == os.getuid()
