"""The command lines of engines of containers; those of docker and apptainer are run nowhere else in these tests."""

import os

import pytest

import drumline
from drumline.node import hook_folder
from drumline.node.containers import rank_containers as c

TOLD = {
    "kind": "podman",
    "program": "/usr/bin/podman",
    "image": "img:1",
    "pull": "never",
    "shm_bytes": 0,
    "arguments": ["--cap-add", "SYS_PTRACE"],
    "cwd": "/run/code",
    "hook": "/hook",
    "names": ["RANK", "SAID", "PATH"],
    "set": ["PATH"],
}
FACTS = c.HostFacts(
    name="drumline-0123456789abcdef",
    user=0,
    group=0,
    limits={"nofile": (512, 1024), "memlock": (c.UNLIMITED, c.UNLIMITED)},
    shared_bytes=1 << 30,
    cores=(),
    has_gpus=False,
    described_gpus=False,
    gpu_devices=(),
    mounts=("/run", "/data"),
    pid_file="/state/pid-7",
    log="/run/log.txt",
)
PROGRAM = ("/bin/bash", "-c", "python train.py")


def line(told=None, facts=FACTS, **changes):
    return c.build_command_line({**TOLD, **(told or {}), **changes}, facts, PROGRAM)


def has(words, *wanted):
    return any(tuple(words[i : i + len(wanted)]) == wanted for i in range(len(words)))


def test_podman_as_root():
    words = line()
    assert words[:3] == ["/usr/bin/podman", "run", "--rm"]
    for wanted in (
        ("--name", FACTS.name),
        ("--network", "host"),
        ("--pid", "host"),
        ("--user", "0:0"),
        ("--ipc", "host"),
        ("--cgroups", "no-conmon"),
        ("--entrypoint", "/bin/sh"),
        ("--ulimit", "nofile=512:1024"),
        ("--ulimit", "memlock=-1:-1"),
        ("--volume", "/run:/run"),
        ("--volume", "/data:/data"),
        ("--workdir", "/run/code"),
        ("--env", "RANK"),
        ("--env", "DRUMLINE_APART_PATH"),
        ("--cap-add", "SYS_PTRACE", "img:1", "-c"),
        ("sh", "/state/pid-7", "/run/log.txt", "/hook", "PATH", *PROGRAM),
    ):
        assert has(words, *wanted), wanted
    assert not has(words, "--userns", "keep-id")
    assert not has(words, "--env", "PATH")


def test_podman_as_a_user_is_that_user_inside():
    assert has(line(facts=FACTS._replace(user=1000)), "--userns", "keep-id")


def test_docker_is_told_the_user_and_the_cores():
    words = line(
        kind="docker", program="/usr/bin/docker", facts=FACTS._replace(user=7, group=8, cores=(0, 2))
    )
    assert has(words, "--user", "7:8")
    assert has(words, "--cpuset-cpus", "0,2")
    assert "--userns" not in words
    assert "--cgroups" not in words


def test_apptainer_takes_variables_from_its_own():
    told = {"kind": "apptainer", "program": "/usr/bin/apptainer", "image": "/env/image.sif"}
    words = line(told, facts=FACTS._replace(has_gpus=True))
    assert words[:4] == ["/usr/bin/apptainer", "--quiet", "exec", "--cleanenv"]
    assert has(words, "--pwd", "/run/code", "--nv", "--bind", "/run", "--bind", "/data")
    assert has(words, "/env/image.sif", "/bin/sh", "-c")
    assert "SYS_PTRACE" not in words
    own = {"DRUMLINE_APART_PATH": "/own"}
    got = c.build_variables({**TOLD, **told}, own | {"RANK": "1", "PATH": "/usr/bin", "OTHER": "x"})
    assert got == {
        "RANK": "1",
        "PATH": "/usr/bin",
        "OTHER": "x",
        "APPTAINERENV_RANK": "1",
        "APPTAINERENV_PATH": "/own",
    }
    assert (
        c.build_variables({**TOLD, **told, "program": "/bin/singularity"}, own)["SINGULARITYENV_PATH"]
        == "/own"
    )


@pytest.mark.parametrize(
    ("kind", "described", "wanted"),
    [
        ("podman", True, ("--device", "nvidia.com/gpu=all")),
        ("podman", False, ("--device", "/dev/nvidia0")),
        ("docker", False, ("--gpus", "all")),
    ],
)
def test_all_gpus_are_there_and_a_variable_chooses(kind, described, wanted):
    facts = FACTS._replace(has_gpus=True, described_gpus=described, gpu_devices=("/dev/nvidia0",))
    assert has(line(kind=kind, facts=facts), *wanted)
    assert not has(line(kind=kind), *wanted)


def test_shared_memory_is_the_machines_unless_that_is_too_small():
    assert has(line(shm_bytes=1 << 29), "--ipc", "host")
    assert has(line(shm_bytes=1 << 31), "--shm-size", str(1 << 31))
    assert "--ipc" not in line(shm_bytes=1 << 31)


def test_odd_paths_are_mounted_or_refused():
    assert has(line(facts=FACTS._replace(mounts=("/a:b",))), "--mount", "type=bind,source=/a:b,target=/a:b")
    with pytest.raises(ValueError, match="cannot be mounted"):
        line(facts=FACTS._replace(mounts=("/a:b,c",)))


def test_the_users_own_python_path_takes_the_place_of_the_images():
    assert has(line(names=["PYTHONPATH"]), "sh", "/state/pid-7", "/run/log.txt", "", "PATH", *PROGRAM)


def test_the_hook_finds_the_package_that_it_is_part_of(tmp_path):
    told = {"mounts": [], "state": "", "cwd": str(tmp_path), "hook": hook_folder.HOOK}
    assert os.path.dirname(drumline.__file__) in c.list_mounts(told)
