"""A component file of ``azure.ml.component`` (v1.5) as a command component of today."""

from __future__ import annotations

import os
import re

from drumline.compat.component_tables import TABLES, as_text
from drumline.contract.errors import SpecError
from drumline.spec.jobs.command import CommandComponent
from drumline.spec.kinds.report import Report
from drumline.spec.kinds.values import quote_node
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import problem_at
from drumline.spec.reading.tree import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.reading.tree import Node

_LAUNCHERS = {
    "mpi": "mpi",
    "openmpi": "mpi",
    "intelmpi": "mpi",
    "torch.distributed": "pytorch",
    "pytorch": "pytorch",
}
_PLACEHOLDER = re.compile(r"(?<![{$])\{(inputs|outputs)\.([\w-]+?)(?:\.path)?\}(?!\})")
_OPTIONAL = re.compile(r"(?<!\[)\[([^\[\]]+?)\](?!\])")


def is_todays_component(root: Mapping) -> bool:
    """Return whether it is a file for ``load_component``."""
    kind = root.get("type")
    word = kind.value if isinstance(kind, Scalar) else None
    return not _kind_of(root) and (word in ("command", "pipeline") or (kind is None and "$schema" in root))


def _kind_of(root: Mapping) -> str:
    """Return ``distributedcomponent`` or ``commandcomponent``; empty for a file of another kind."""
    for key in ("type", "$schema"):
        node = root.get(key)
        if isinstance(node, Scalar) and isinstance(node.value, str):
            word = node.value.rpartition("/")[2].removesuffix(".json").lower()
            if word in TABLES:
                return word
            if key == "type" and word != "command":
                return ""
    return "distributedcomponent" if "launcher" in root else ""


def load(path: str | os.PathLike[str]) -> CommandComponent:
    """Load the component in a file. Raises SpecError with every problem of it."""
    place = os.fspath(path)
    root = as_text(read_yaml(place, place))
    assert isinstance(root, Mapping)
    kind = _kind_of(root)
    if not kind:
        at = root.get("type") or root
        what = (
            f"{quote_node(at)} is not a type of component"
            if at is not root
            else "the file is not a component of v1.5"
        )
        raise SpecError([problem_at(at, what, path="type", hint="DistributedComponent or CommandComponent")])
    folder = os.path.dirname(os.path.abspath(place))
    report = Report(folder)
    values = TABLES[kind].check(root, "", report)
    command, distribution = _program(kind, root, values, report)
    if report.problems:
        raise SpecError(report.problems)
    given = {key: value for key, value in values.items() if value is not None}
    for key in ("launcher", "command"):
        given.pop(key, None)
    # Without code the folder of the file is it.
    given.setdefault("code", ".")
    component = CommandComponent(
        **given,
        command=command,
        distribution=distribution,
        additional_includes=_includes(place),
        base_path=folder,
    )
    component._source = place
    return component


def _includes(place: str) -> list[str]:
    """
    List what ``train.additional_includes`` beside ``train.yml`` wants to be laid beside the code. Raises SpecError.
    """
    beside = os.path.splitext(place)[0] + ".additional_includes"
    try:
        with open(beside, encoding="utf-8-sig") as file:
            return [line.strip() for line in file if line.strip()]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"cannot read {beside!r}: {reason}") from None


def _program(
    kind: str, root: Mapping, values: dict[str, Any], report: Report
) -> tuple[str, dict[str, Any] | None]:
    """Return the command and the distribution."""
    if kind == "commandcomponent":
        return _command(values.get("command"), root.get("command"), "command", values, report), None
    launcher, node = values.get("launcher") or {}, root.get("launcher")
    if not isinstance(node, Mapping):
        return "", None
    text = node.get("additional_arguments")
    path = "launcher.additional_arguments"
    command = _command(launcher.get("additional_arguments"), text, path, values, report)
    word = launcher.get("type")
    if word is None:
        return command, None
    found = _LAUNCHERS.get(word.lower())
    if found is None:
        known = "'mpi', 'torch.distributed' and 'Pytorch' are"
        report.add(f"launcher.type: {word!r} is not known", node.get("type") or node, "launcher.type", known)
        return command, None
    return command, {"type": found}


def _command(text: str | None, node: Node | None, path: str, values: dict[str, Any], report: Report) -> str:
    """Return a command with today's placeholders. ``[--a {inputs.a}]`` is left out where the input has no value."""
    if text is None or node is None:
        return ""
    for group, name in dict.fromkeys(_PLACEHOLDER.findall(text)):
        known = values.get(group) or {}
        if name not in known:
            from drumline.spec.hints import did_you_mean

            hint = did_you_mean(name, known) or f"{group}: " + (", ".join(known) or "none")
            report.add(f"{path} refers to {{{group}.{name}}}, which is not declared", node, path, hint)
    whole = _OPTIONAL.sub(
        lambda found: f"$[[{found[1]}]]" if _PLACEHOLDER.search(found[1]) else found[0], text
    )
    return _PLACEHOLDER.sub(r"${{\1.\2}}", whole).strip()
