"""
Values that name a folder, a file or a URL: ``code``, build contexts, and what must exist when a
job is read.
"""

from __future__ import annotations

import os
import re

from drumline.contract.errors import SpecError
from drumline.spec.entity import text_path
from drumline.spec.kinds.values import Kind
from drumline.spec.reading.files import read_yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.values import Report
    from drumline.spec.reading.source import Node

_URL = (
    r"(?:https?|ftps?)://(?:[^\s/@]*@)?"
    r"(?:localhost|\d+\.\d+\.\d+\.\d+|\[[0-9a-f:.]+\]|"
    r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?\.[a-z0-9-]{2,})"
    r"(?::\d+)?(?:[/?]\S*)?\Z"
)
_REGISTRY = ("azureml://registries/", "azureml://feeds/")


def is_url(text: str) -> bool:
    return "://" in text and bool(re.match(_URL, text, re.IGNORECASE))


def is_versioned(text: str) -> bool:
    """Return whether a text is ``azureml:name:version``, ``azureml:name@label`` or a full resource id."""
    if not text.startswith("azureml:"):
        return False
    name = text.removeprefix("azureml:")
    if name.startswith("/"):
        return "/versions/" in name or "/labels/" in name
    head, mark, tail = name.partition("@")
    if not mark:
        head, mark, tail = name.partition(":")
    return bool(head and tail) and "/" not in head


def exists(value: str, base_path: str) -> bool:
    try:
        return os.path.exists(os.path.join(base_path, value))
    except ValueError:
        return False


class LocalPath(Kind):
    """A file or folder that exists, relative to the job file."""

    word = "a path"
    json_types = ("string",)

    def adopt(self, value: Any) -> Any:
        return text_path(value)

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value
        if not isinstance(value, str):
            self.refuse(node, path, report)
            return None
        if self._is_elsewhere(value) or exists(value, report.base_path):
            return value
        full = os.path.normpath(os.path.join(report.base_path, value))
        report.add(f"{path}: no such file or folder: {full!r}", node, path, self._hint(value, report))
        return None

    def _is_elsewhere(self, value: str) -> bool:
        return False

    def _hint(self, value: str, report: Report) -> str:
        if value.startswith("file:") and exists(value[5:], report.base_path):
            return f"write {value[5:]!r}"
        return ""


class BuildPath(LocalPath):
    word = "a folder or URL"

    def _is_elsewhere(self, value: str) -> bool:
        return is_url(value)


class Code(LocalPath):
    """A folder or file that exists, a URL, ``git+...``, or a registered snapshot."""

    word = "a folder, file or URL"

    def _is_elsewhere(self, value: str) -> bool:
        registered = value.startswith(_REGISTRY) or is_versioned(value)
        return registered or is_url(value) or value.startswith("git+")

    def _hint(self, value: str, report: Report) -> str:
        if value.startswith("azureml:"):
            return f"a registered snapshot needs its version: '{value}:1'"
        return super()._hint(value, report)


def check_file(reference: str, kind: Kind, node: Node, path: str, report: Report) -> Any:
    """
    Check the content of a file that a ``file:`` reference names as ``kind``, and return it; problems name that file.
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
        root = read_yaml(full)
    except SpecError as error:
        for problem in error.problems:
            problem.path = problem.path or path
            report.put(problem)
        return None
    else:
        root.key = None
        return kind.check(root, path, report)
    finally:
        report.leave(before)
