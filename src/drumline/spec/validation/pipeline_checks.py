"""Checks between the nodes of a pipeline: bindings and required inputs."""

from __future__ import annotations

import os

from drumline.contract.errors import SpecError
from drumline.spec.kinds.values import join
from drumline.spec.parts.bindings import PATTERN, RESERVED_OUTPUTS
from drumline.spec.reading.tree import Mapping, Scalar
from drumline.spec.validation.checks import check_bindings, check_environment, check_keys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from drumline.spec.kinds.report import Report
    from drumline.spec.reading.tree import Node


def check_pipeline(job: Mapping, report: Report, optional: Container[str] = ()) -> None:
    """Check a pipeline job, after its fields. ``optional``: inputs that it has, and was not given."""
    check_keys(job.get("inputs"), "inputs", report, dotted=True)
    check_keys(job.get("outputs"), "outputs", report)
    component = job.get("component")
    if component is not None and job.get("jobs") is not None:
        report.add("'jobs' and 'component' exclude each other", component, "component", "keep one")
    jobs = job.get("jobs")
    for name, _, node in jobs if isinstance(jobs, Mapping) else ():
        if isinstance(node, Mapping):
            path = f"jobs.{name}"
            _check_node_bindings(job, node, path, report, optional)
            _check_program(node, path, report)
            _check_required(node, path, report)


def _check_program(node: Mapping, path: str, report: Report) -> None:
    if "component" in node or "command" not in node:
        return
    check_bindings(node.get("command"), node.get("inputs"), join(path, "command"), report)
    check_environment(node.get("environment"), join(path, "environment"), report)


def _check_node_bindings(
    job: Mapping, node: Mapping, path: str, report: Report, optional: Container[str]
) -> None:
    for group in ("inputs", "outputs"):
        for name, text in _texts(node.get(group)):
            for expression in PATTERN.findall(str(text.value)):
                problem, hint = _binding_problem(job, expression, group)
                if problem and expression.removeprefix("parent.inputs.") not in optional:
                    report.add(problem, text, f"{path}.{group}.{name}", hint)


def _texts(group: Node | None) -> Iterator[tuple[str, Scalar]]:
    """Yield the texts that may hold bindings: an item itself, or its path."""
    for name, _, item in group if isinstance(group, Mapping) else ():
        value = item.get("path") if isinstance(item, Mapping) else item
        if isinstance(value, Scalar) and isinstance(value.value, str):
            yield str(name), value


def _binding_problem(job: Mapping, expression: str, group: str) -> tuple[str, str]:
    written = f"${{{{{expression}}}}}"
    steps = expression.split(".")
    if steps[0] in ("inputs", "outputs", "jobs"):
        return f"{written} is an old form", f"write ${{{{parent.{expression}}}}}"
    if steps[:2] == ["parent", "inputs"] and group == "inputs":
        if not _has(job.get("inputs"), ".".join(steps[2:])):
            return f"{written} is not an input of the pipeline", _list_known(job.get("inputs"))
    elif steps[:2] == ["parent", "jobs"] and len(steps) > 2:
        return _job_problem(job, steps, written)
    return "", ""


def _job_problem(job: Mapping, steps: list[str], written: str) -> tuple[str, str]:
    jobs = job.get("jobs")
    source = jobs.get(steps[2]) if isinstance(jobs, Mapping) else None
    if source is None:
        return f"{written}: the pipeline has no job {steps[2]!r}", _list_known(jobs)
    is_inline = isinstance(source, Mapping) and "component" not in source and "command" in source
    if is_inline and isinstance(source, Mapping) and steps[3:4] == ["outputs"] and len(steps) > 4:
        outputs = source.get("outputs")
        if steps[4] not in RESERVED_OUTPUTS and not _has(outputs, steps[4]):
            return f"{written}: {steps[2]!r} has no output {steps[4]!r}", _known_outputs(outputs, steps[4])
    return "", ""


def _has(group: Node | None, name: str) -> bool:
    return isinstance(group, Mapping) and name in group


def _list_known(group: Node | None) -> str:
    names = list(group.entries) if isinstance(group, Mapping) else []
    return "known: " + (", ".join(map(str, names)) or "none")


def _known_outputs(group: Node | None, wanted: str) -> str:
    """Return the output that was probably meant, else all, with those that every job has."""
    from drumline.spec.hints import did_you_mean

    names = [*map(str, group.entries if isinstance(group, Mapping) else ())]
    names += [name for name in RESERVED_OUTPUTS if name not in names]
    return did_you_mean(wanted, names) or "known: " + ", ".join(names)


def _check_required(node: Mapping, path: str, report: Report) -> None:
    """Report inputs that the node's component needs and that have no value."""
    component = node.get("component")
    declared = _declared_inputs(component, report.base_path)
    given = node.get("inputs")
    for name, _, declaration in declared if declared is not None else ():
        is_free = isinstance(declaration, Mapping) and ("default" in declaration or _is_optional(declaration))
        if not is_free and not _has(given, str(name)):
            what = f"{path} needs the input {name!r} of its component"
            report.add(what, given or node, f"{path}.inputs.{name}")


def _declared_inputs(component: Node | None, base_path: str) -> Mapping | None:
    if isinstance(component, Scalar) and isinstance(component.value, str):
        if component.value.startswith("azureml:"):
            return None
        from drumline.spec.reading.files import read_yaml

        try:
            component = read_yaml(os.path.join(base_path, component.value.removeprefix("file:")))
        except SpecError:
            return None
    inputs = component.get("inputs") if isinstance(component, Mapping) else None
    return inputs if isinstance(inputs, Mapping) else None


def _is_optional(declaration: Mapping) -> bool:
    optional = declaration.get("optional")
    return isinstance(optional, Scalar) and str(optional.value).lower() == "true"
