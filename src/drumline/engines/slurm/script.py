"""The batch script of a job: pure, and what ``drumline plan`` shows."""

from __future__ import annotations

import os
import re
import shlex
import sys
from typing import TYPE_CHECKING

from drumline.engines.slurm import options

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./\[\]&|*-]*")


def log_of(folder: RunFolder) -> str:
    return os.path.join(folder.system_logs, "slurm.log")


def interpreter_of(plan: Plan) -> str:
    return str(plan.compute.get("python") or sys.executable)


def render(plan: Plan, folder: RunFolder) -> str:
    """Return the script that ``sbatch`` reads. Raises PlanError as ``options.make_options``."""
    lines = ["#!/bin/bash"]
    for name, value in options.make_options(plan, log_of(folder)).items():
        lines.append(f"#SBATCH --{name}" + ("" if value is None else f"={_quote(value)}"))
    base = os.path.dirname(os.path.dirname(folder.root)) if plan.workspace else folder.root
    lines.append(f"export DRUMLINE_HOME={shlex.quote(base)}")
    if plan.workspace:
        lines.append(f"export DRUMLINE_WORKSPACE={shlex.quote(plan.workspace)}")
    if plan.compute.get("setup"):
        lines += str(plan.compute["setup"]).splitlines()
    program = [interpreter_of(plan), "-P", "-m", "drumline.supervisor", "--batch", folder.path]
    lines.append("exec " + " ".join(map(shlex.quote, program)))
    return "\n".join(lines) + "\n"


def _quote(value: str) -> str:
    """Quote a word for sbatch's lines in its script: double quotes, and a backslash before what would end them."""
    if _PLAIN.fullmatch(value):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
