"""Reading a job file, and the files that it refers to."""

from __future__ import annotations

import os

from drumline.contract.errors import Problem, SpecError
from drumline.spec.source import MAX_BYTES, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.nodes import Mapping, Node
    from drumline.spec.schema.kinds import Kind
    from drumline.spec.schema.report import Report


def read(path: str, name: str = "") -> Mapping:
    """
    The mapping in a YAML file.

    name: what messages call the file; its path relative to the working folder unless given.
    """
    shown = name or _shown(path)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise SpecError(f"no such file: {shown!r}") from None
    except IsADirectoryError:
        hint = _yaml_inside(path)
        raise SpecError(f"{shown!r} is a folder, not a file", hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"cannot read {shown!r}: {reason}") from None
    return parse(data, shown)


def _shown(path: str) -> str:
    short = os.path.relpath(path) if os.path.isabs(path) else path
    return path if short.startswith("..") else short


def _yaml_inside(folder: str) -> str:
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith((".yml", ".yaml")))
    except OSError:
        return ""
    return f"did you mean {os.path.join(folder, names[0])!r}?" if names else ""


def check_file(reference: str, kind: Kind, node: Node, path: str, report: Report) -> Any:
    """
    What a ``file:`` reference stands for, checked as ``kind``; problems carry the name of that
    file.
    """
    full = os.path.abspath(os.path.join(report.base_path, reference.removeprefix("file:")))
    if full in report.open_files:
        report.add(f"{path}: {reference!r} refers back to itself", node, path)
        return None
    if not os.path.isfile(full):
        report.add(f"{path}: no such file: {full!r}", node, path)
        return None
    before = report.enter(node, full, os.path.dirname(full))
    try:
        root = read(full)
    except SpecError as error:
        for problem in error.problems:
            report.put(_with_path(problem, path))
        return None
    else:
        root.key = None
        return kind.check(root, path, report)
    finally:
        report.leave(before)


def _with_path(problem: Problem, path: str) -> Problem:
    problem.path = problem.path or path
    return problem
