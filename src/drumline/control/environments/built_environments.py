"""Environments as ``drumline environment build`` makes them, and ``show`` tells of them."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NodeError, SpecError, UsageError
from drumline.control.environments.environment_builds import EnvironmentPlan, TargetMachine, plan_environment
from drumline.control.times import utc

if TYPE_CHECKING:
    from drumline.contract.plan import Build
    from drumline.spec.parts.environment import Environment

_END_S = 5.0


def in_file(path: str) -> Environment:
    """Load an environment from its file, or from a conda file. Raises SpecError."""
    from drumline.spec.load import load_environment
    from drumline.spec.parts.environment import Environment
    from drumline.spec.reading.files import read_yaml

    root = read_yaml(path)
    if {"channels", "dependencies"} & root.entries.keys():
        return Environment(conda_file=os.path.abspath(path), base_path=os.path.dirname(os.path.abspath(path)))
    return load_environment(path)


def build(environment: Environment, log: int, *, is_forced: bool = False) -> dict[str, Any]:
    """
    Make it unless it is there. Blocks. ``log``: a descriptor for what the tools say.

    Raises PlanError, UsageError where there is nothing to build, NodeError where it cannot be built.
    """
    from drumline.staging.environments.folder import interpreter_of

    wanted = _of_this_machine(environment)
    if wanted.build is None:
        why = "; ".join(wanted.warnings) or "it names no packages"
        raise UsageError(f"there is nothing to build: {why}", "an environment with a conda_file")
    said = _end_of(wanted.build, log, is_forced=is_forced)
    if said.get("type") != "ready":
        raise NodeError(
            str(said.get("message") or "the environment was not built"), str(said.get("hint") or "")
        )
    python = interpreter_of(wanted.build)
    shown = {"kind": wanted.build.kind, "digest": wanted.build.digest, "prefix": wanted.build.prefix}
    return {
        **shown,
        **({"python": python} if python else {}),
        "seconds": said["seconds"],
        "reused": said["reused"],
    }


def _end_of(wanted: Build, log: int, *, is_forced: bool) -> dict[str, Any]:
    """Build in a process of its own, which ends with all that it has started; return the last that it says."""
    import subprocess

    argv = [
        sys.executable,
        "-P",
        "-m",
        "drumline.staging.environments",
        "--stdin",
        *(["--force"] if is_forced else []),
    ]
    process = subprocess.Popen(  # noqa: S603 - our own module
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
    )
    try:
        said = process.communicate(json.dumps(wanted._asdict()).encode())[0]
    except BaseException:
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        raise
    try:
        last = json.loads(said.splitlines()[-1])
    except (IndexError, ValueError):
        return {}
    return last if isinstance(last, dict) else {}


def state_of(environment: Environment) -> dict[str, Any]:
    """Describe whether an environment is built, where, when, and its size; empty for one that needs no building."""
    if environment.python:
        return {}
    try:
        wanted = _of_this_machine(environment)
    except SpecError as error:
        return {"is_ready": False, "reason": error.message}
    return _state(wanted.build) if wanted.build is not None else {}


def _of_this_machine(environment: Environment) -> EnvironmentPlan:
    if environment.python:
        raise UsageError(f"there is nothing to build: it is the Python {environment.python}")
    return plan_environment(environment, TargetMachine(sys.executable))


def _state(wanted: Build) -> dict[str, Any]:
    from drumline.staging.environments.folder import MARKER
    from drumline.staging.environments.state import is_ready

    shown: dict[str, Any] = {"is_ready": is_ready(wanted), "kind": wanted.kind, "prefix": wanted.prefix}
    if not shown["is_ready"]:
        return shown
    marker = os.path.join(wanted.prefix, MARKER)
    try:
        with open(marker, encoding="utf-8") as file:
            made = json.load(file)
        shown["made"] = utc(float(made["made"]), "seconds")
        shown["seconds"] = made["seconds"]
        shown["last_used"] = utc(os.stat(marker).st_mtime, "seconds")
    except (OSError, ValueError, KeyError, TypeError):
        pass  # Somebody has changed it by hand; it is there all the same.
    return {**shown, "size_mb": round(_size(wanted.prefix) / (1 << 20), 1)}


def _size(folder: str) -> int:
    """Return the size on disk in bytes, with files that a cache shares by hard links."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(at, name)).st_blocks * 512
            except OSError:
                continue
    return total
