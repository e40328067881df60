"""Without the calls that only Linux has: everything imports, and what needs no ranks on this machine works."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "drumline"

TAKE_AWAY = """
import builtins, os, sys
# What the standard library chooses by platform when it is imported is this machine's.
import asyncio, concurrent.futures, ctypes, email, fcntl, http.server, importlib.metadata, multiprocessing.pool
import multiprocessing.shared_memory, pkgutil, platform, pwd, resource, select, shutil, signal, socket, socketserver
import sqlite3, ssl, subprocess, tempfile, threading, urllib.request, uuid, webbrowser, zipfile, tarfile

MISSING = {
    os: (
        "pidfd_open", "sched_getaffinity", "sched_setaffinity", "memfd_create", "MFD_CLOEXEC", "posix_fadvise",
        "posix_fallocate", "eventfd", "setns", "unshare", "copy_file_range", "splice", "getrandom", "pipe2",
        "O_TMPFILE", "O_PATH", "O_DIRECT", "P_PIDFD", "CLONE_NEWNS", "getresuid", "setresuid", "getxattr", "setxattr",
        "listxattr", "removexattr", "POSIX_FADV_WILLNEED", "POSIX_FADV_DONTNEED", "sched_setscheduler",
        "sched_getparam", "RWF_DSYNC", "EFD_CLOEXEC", "timerfd_create",
    ),
    select: [name for name in dir(select) if "epoll" in name.lower()],
    signal: (
        "SIGRTMAX", "SIGRTMIN", "SIGPWR", "SIGSTKFLT", "SIGPOLL", "pidfd_send_signal", "sigtimedwait", "sigwaitinfo",
        "SIGCLD",
    ),
    resource: ("prlimit", "RLIMIT_SIGPENDING", "RLIMIT_MSGQUEUE", "RLIMIT_RTPRIO", "RLIMIT_RTTIME", "RUSAGE_THREAD"),
    socket: [
        name for name in dir(socket)
        if name.startswith(("AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SO_PEERCRED", "SO_BINDTODEVICE", "SOCK_CLOEXEC",
                            "SOCK_NONBLOCK", "TCP_USER_TIMEOUT", "IP_BIND_ADDRESS", "SO_INCOMING"))
    ],
}
for module, names in MISSING.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


class Library:
    def __init__(self, *_, **__):
        pass

    def __getattr__(self, name):
        raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")


ctypes.CDLL = Library


def hide(module, name):
    call = getattr(module, name)

    def hidden(path=".", *more, **named):
        if isinstance(path, (str, bytes, os.PathLike)) and os.fspath(path)[:5] in ("/proc", b"/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return call(path, *more, **named)

    setattr(module, name, hidden)


for module, name in (
    (builtins, "open"), (os, "open"), (os, "listdir"), (os, "scandir"), (os, "stat"), (os, "lstat"), (os, "readlink"),
    (os, "access"), (os.path, "exists"), (os.path, "isdir"), (os.path, "isfile"),
):
    hide(module, name)
sys.platform = "darwin"
"""

RUN = (
    TAKE_AWAY
    + """
import contextlib, io, json, shlex
from drumline.cli.main import main
done = []
for line in sys.argv[1:]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(shlex.split(line))
    done.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(done), flush=True)
os._exit(0)
"""
)

IMPORT = (
    TAKE_AWAY
    + """
import importlib, traceback
failed = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        # A package of an extra, which this machine may not have.
        if (error.name or "").startswith("drumline"):
            failed.append((name, traceback.format_exc()))
    except BaseException:
        failed.append((name, traceback.format_exc()))
for name, text in failed:
    print(name, text)
sys.exit(bool(failed))
"""
)


def run(program, *arguments, cwd):
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


def module_names():
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        # Those run as programs, with arguments, and the hook of the ranks' Pythons.
        if parts[-1] == "__main__" or parts[:3] == ("drumline", "node", "hook"):
            continue
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_every_module_imports(tmp_path):
    done = run(IMPORT, *module_names(), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


JOB = """\
command: python train.py --lr ${{inputs.lr}}
inputs: {lr: 0.1}
resources: {instance_count: 2}
distribution: {type: pytorch, process_count_per_instance: 2}
"""
PIPELINE = """\
type: pipeline
jobs:
  prepare: {command: echo hello}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "job.yml").write_text(JOB)
    (tmp_path / "pipeline.yml").write_text(PIPELINE)
    return tmp_path


HARMLESS = (
    "--help",
    "--version",
    "help job create",
    "job validate -f job.yml",
    "job validate -f pipeline.yml",
    "plan -f job.yml",
    "plan -f pipeline.yml",
    "schema pipeline",
    "init --yes --out new.yml",
    "completion zsh",
    "job list",
    "compute list",
    "compute show local",
    "compute list-nodes local",
    "environment list",
    "warm list",
    "cache show",
    "configure --list-defaults",
    "workspace list",
)


def run_lines(*lines, cwd):
    """The code, output and errors of each command line, in one process without Linux."""
    done = run(RUN, *lines, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return zip(lines, json.loads(done.stdout), strict=True)


def test_what_needs_no_ranks_works(folder):
    for line, (code, out, err) in run_lines(*HARMLESS, cwd=folder):
        assert (code, "error" in err) == (0, False), (line, err)
        assert out or "init" in line


def test_a_local_job_says_what_it_needs(folder, drumline_home):
    lines = ("run --nodes 2 -- true", "job create -f job.yml", "job create -f pipeline.yml", "run -d -- true")
    for line, (code, _, err) in run_lines(*lines, cwd=folder):
        assert code == 2, (line, err)
        assert err.splitlines()[-2:] == [
            "error: jobs on this machine need Linux; this is darwin",
            "hint: submit from here to a Slurm cluster, --compute NAME, or run drumline on a Linux machine",
        ]
    assert not list((drumline_home / "jobs").glob("*"))


def test_a_cluster_is_asked(folder, monkeypatch):
    """With the commands of Slurm, which a shell script stands for here."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for name in ("sinfo", "sbatch", "squeue", "scontrol", "sacct"):
        (bin_folder / name).write_text("#!/bin/sh\necho 'slurm 23.11.4'\n")
        (bin_folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_folder}:{os.environ['PATH']}")
    (folder / "slurm.yml").write_text(JOB + "compute: azureml:gpu\n")
    attach = f"compute attach --type slurm --name gpu --no-check --folder {folder}/runs"
    (_, attached), (_, planned) = run_lines(attach, "plan -f slurm.yml", cwd=folder)
    assert attached[0] == 0, attached
    assert planned[0] == 0, planned
    assert "#SBATCH" in planned[1]


def test_the_sdk_imports(folder):
    program = (
        TAKE_AWAY
        + "from drumline import MLClient, command\nMLClient().jobs.list()\nprint(command(command='x').type)\n"
    )
    done = run(program, cwd=folder)
    assert (done.returncode, done.stdout) == (0, "command\n"), done.stderr
