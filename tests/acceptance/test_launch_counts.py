"""
What a bare launch costs, in counts that do not depend on the machine: processes, modules, system calls.

They are compared with `launch_counts.json`. A change that costs fails here, and so does one that saves, so that the
numbers stay true; where it is meant, `pytest tests/acceptance/test_launch_counts.py --update-counts` writes them anew.
Times are in `benchmarks/launch`.
"""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

COUNTS = Path(__file__).with_name("launch_counts.json")
RANKS = (2, 4)
TRIES = 5
"""A busy machine adds looks and messages; the least of some launches is what the launch itself needs."""

TOLERANCE = {"processes": 0, "programs": 0, "modules": 3, "system calls": 0.1}
"""Absolute for whole numbers, else a share."""

OF_ANY_PYTHON = ("processes", "programs")
"""The others are compared where there are numbers of this version of Python: another one imports other modules."""

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

TRACED = "%file,%process,prctl,setsid,socket,connect,sendto,write,pwrite64,inotify_add_watch,inotify_rm_watch"
"""Not what depends on how often a process is woken: poll, read and the like."""

OTHERS = re.compile(r'---|\+\+\+|.*"/proc/')
"""Signals and ends; and looks at processes, which are as many as there are on the machine."""

LOOKS = re.compile(r'(?:openat|newfstatat)\(AT_FDCWD, "[^"]*/jobs/')
"""The command's looks at the job, which are as many as the job takes time."""

MODULE = re.compile(r'openat\(AT_FDCWD, "([^"]*\.pyc)", O_RDONLY\|O_CLOEXEC\) = \d')
"""Bytecode alone: what Python has in C is a file in one build and part of the program in another."""

LATE = re.compile(r"/struct\.|/ctypes/|/contract/filesystems\.|/node/(?:__init__|inotify|kernel)\.")
"""What the command loads once a job has lasted half a second (`growth.py`), as on a busy machine; not counted there."""

ROLES = {"drumline-job": "supervisor", "drumline-node-": "agents"}


@pytest.fixture
def counted(tmp_path, monkeypatch):
    """Counts of one launch of 2x4 ranks that do nothing, by role."""
    assert shutil.which("strace"), "strace is missing; scripts/setup test installs it"
    # What the command stores of its folder afterwards is the program alone, and no trace of a launch before.
    work = tmp_path / "work"
    work.mkdir()
    script = work / "noop.py"
    script.write_text("import os\n")
    # Bytecode is there for all of them, whatever the machine's settings are; what differs between machines is off.
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "bytecode"))
    monkeypatch.setenv("DRUMLINE_CGROUP", "0")
    nodes, procs = RANKS
    program = [sys.executable, "-c", "from drumline.cli.main import script; script()", "run"]
    launch = [*program, "--nodes", str(nodes), "--procs", str(procs), "--", sys.executable, str(script)]
    subprocess.run(launch, cwd=work, check=True, capture_output=True, timeout=120)

    def count(number):
        folder = tmp_path / f"trace-{number}"
        folder.mkdir()
        traced = ["strace", "-ff", "-qq", "-s", "300", "-e", f"trace={TRACED}", "-o", str(folder / "of")]
        subprocess.run([*traced, *launch], cwd=work, check=True, capture_output=True, timeout=120)
        return counts_of(folder)

    return count


def counts_of(folder):
    """By role: processes, programs that they became, and for each process modules imported and system calls made."""
    texts = {int(path.suffix[1:]): path.read_text() for path in folder.iterdir()}
    found = {}
    for text in texts.values():
        role = role_of(text)
        counts = found.setdefault(role, Counter())
        counts["processes"] += 1
        counts["programs"] += len(re.findall(r"^execve\(.* = 0$", text, re.MULTILINE))
        modules = set(MODULE.findall(text))
        counts["modules"] += sum(role != "command" or not LATE.search(module) for module in modules)
        counts["system calls"] += sum(
            not (OTHERS.match(line) or (role == "command" and LOOKS.match(line)))
            for line in text.splitlines()
        )
    for counts in found.values():
        for name in ("modules", "system calls"):
            counts[name] = round(counts[name] / counts["processes"])
    return {role: dict(counts) for role, counts in sorted(found.items())}


def role_of(text):
    named = re.findall(r'PR_SET_NAME, "([\w-]*)', text)
    role = next((role for name, role in ROLES.items() for one in named if one.startswith(name)), "")
    if role or "execve(" not in text:
        return role or "others"
    return "command" if "drumline.cli.main" in text.partition("\n")[0] else "ranks"


def least(several):
    return {
        role: {name: min(one[role][name] for one in several) for name in counts}
        for role, counts in several[0].items()
    }


def differences(expected, counts):
    said = []
    known = expected.get(PYTHON) or next(iter(expected.values()))
    for role in sorted({*known, *counts}):
        for name, tolerance in TOLERANCE.items():
            before, now = (one.get(role, {}).get(name, 0) for one in (known, counts))
            is_known = PYTHON in expected or name in OF_ANY_PYTHON
            if is_known and abs(now - before) > (
                tolerance if isinstance(tolerance, int) else tolerance * before
            ):
                said.append(f"{name} of {role}: {now}, {before} expected")
    return said


def test_a_launch_costs_what_it_did(counted, request):
    several = [counted(0)]
    update = request.config.getoption("--update-counts")
    expected = json.loads(COUNTS.read_text())
    while len(several) < TRIES and (update or differences(expected, least(several))):
        several.append(counted(len(several)))
    if update:
        COUNTS.write_text(json.dumps({**expected, PYTHON: least(several)}, indent=1) + "\n")
        return
    assert not differences(expected, least(several)), "see CONTRIBUTING.md, What a launch costs"
