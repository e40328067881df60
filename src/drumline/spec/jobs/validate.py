"""The mistakes in a job as a whole, whether it came from YAML or was built in Python."""

from __future__ import annotations

import os
import re

from drumline.contract.errors import Problem, SpecError
from drumline.spec.entity_types import job_table
from drumline.spec.hints import did_you_mean, unknown_attributes
from drumline.spec.jobs.command import PYTHON_COMMAND_JOB
from drumline.spec.jobs.job import to_dict
from drumline.spec.kinds.values import Report, join
from drumline.spec.parts.environment import check_recipe
from drumline.spec.parts.io import PATTERN, RESERVED_OUTPUTS
from drumline.spec.placeholders import undefined_inputs
from drumline.spec.reading.files import read_yaml
from drumline.spec.reading.source import Mapping, Scalar, Sequence, find, plain, problem_at, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator
    from typing import Any

    from drumline.spec.jobs.job import Job
    from drumline.spec.reading.source import Node


class ValidationResult:
    """Every problem of a job, with azure-ai-ml's two attributes on top."""

    def __init__(self, problems: list[Problem], warnings: list[str]) -> None:
        self.problems = problems
        self.warnings = warnings

    @property
    def passed(self) -> bool:
        return not self.problems

    @property
    def error_messages(self) -> dict[str, str]:
        """Return messages by dotted path, ``*`` for the job as a whole."""
        messages: dict[str, str] = {}
        for problem in self.problems:
            path = problem.path or "*"
            messages[path] = f"{messages[path]}; {problem.what}" if path in messages else problem.what
        return messages

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"ValidationResult(passed={self.passed}, error_messages={self.error_messages!r})"


def validate(job: Job) -> ValidationResult:
    """
    Check a job as a whole: its fields, for those may have changed, and what shows between them.

    What cannot run here (a count of 0, an input that no machine has) is the planner's to refuse.
    """
    report = Report(job.base_path)
    tree = wrap(to_dict(job))
    assert isinstance(tree, Mapping)
    table = PYTHON_COMMAND_JOB if job.type == "command" else job_table(job.type)
    table.check(tree, "", report)
    if job.type == "command":
        check_command(tree, report)
    elif job.type == "sweep":
        check_sweep(tree, report)
    elif job.type == "pipeline":
        check_pipeline(tree, report, getattr(job, "_optional", frozenset()))
    problems = [_locate(problem, job, tree) for problem in report.problems]
    return ValidationResult(problems, [*job._warnings, *unknown_attributes(job)])


def locate_problems(problems: Iterable[Problem], job: Job) -> list[Problem]:
    """Return the problems with file and line, if what they are about is still as the job's file has it."""
    tree = wrap(to_dict(job))
    assert isinstance(tree, Mapping)
    return [_locate(problem, job, tree) for problem in problems]


def _locate(problem: Problem, job: Job, tree: Mapping) -> Problem:
    if job._root is None or problem.line:
        return problem
    node, now = find(job._root, problem.path), find(tree, problem.path)
    place = problem.path
    while node is None and now is None and place:  # missing: point at what should have held it
        place = place.rpartition(".")[0]
        node, now = find(job._root, place), find(tree, place)
    is_missing = place != problem.path
    if not place or node is None or now is None or not (is_missing or _same(plain(node), plain(now))):
        problem.file = problem.file or job._source
        return problem
    anchor = node.key if node.key and (is_missing or isinstance(node, Mapping)) else node
    return problem_at(anchor, problem.what, path=problem.path, hint=problem.hint)


def _same(written: object, now: object) -> bool:
    """Return whether two values are the same but for case: the schema writes the names of choices in its own."""
    return written == now or str(written).lower() == str(now).lower()


# Checks between the fields of a job: names that refer to each other, and choices that exclude each other.


_KEY = r"[A-Za-z_][A-Za-z0-9_]*\Z"
_DOTTED_KEY = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*\Z"


def check_command(job: Mapping, report: Report) -> None:
    """Check a command job, after its fields."""
    check_bindings(job.get("command"), job.get("inputs"), "command", report)
    check_keys(job.get("inputs"), "inputs", report)
    check_keys(job.get("outputs"), "outputs", report)
    check_environment(job.get("environment"), "environment", report)


def check_sweep(job: Mapping, report: Report) -> None:
    trial = job.get("trial")
    if isinstance(trial, Mapping):
        check_bindings(trial.get("command"), job.get("inputs"), "trial.command", report, loose=True)
        check_environment(trial.get("environment"), "trial.environment", report)
    for name in ("inputs", "outputs", "search_space"):
        check_keys(job.get(name), name, report)


def check_bindings(
    command: Node | None, inputs: Node | None, path: str, report: Report, *, loose: bool = False
) -> None:
    """
    Check that every ``${{inputs.x}}`` of a command names an input.

    loose: count single braces too, as azure-ai-ml does for the trial of a sweep.
    """
    if command is None or not isinstance(command.value, str):
        return
    text = command.value
    if loose:
        text = re.sub(r"(?<![{$])\{(inputs\.[\w.-]+)\}(?!\})", r"${{\1}}", text)
    known = plain(inputs) if isinstance(inputs, Mapping) else {}
    for name in undefined_inputs(text, known):
        what = f"{path} refers to ${{{{inputs.{name}}}}}, which is not an input"
        report.add(what, command, path, _input_hint(name, known))


def _input_hint(name: str, known: dict[str, object]) -> str:
    owner, dot, rest = name.partition(".")
    if dot and owner in known:
        return f"write ${{{{inputs.{owner}}}}}: it is the path" if rest == "path" else ""
    return did_you_mean(name, known) or "inputs of the job: " + (", ".join(known) or "none")


def check_keys(node: Node | None, path: str, report: Report, *, dotted: bool = False) -> None:
    pattern = _DOTTED_KEY if dotted else _KEY
    for key, key_node, _ in node if isinstance(node, Mapping) else ():
        if isinstance(key, str) and not re.match(pattern, key):
            rule = "may hold letters, digits and '_', and not begin with a digit"
            what = f"the name {key!r} in {path} {rule}"
            fixed = re.sub(r"\W", "_", key, flags=re.ASCII)
            hint = f"did you mean {fixed!r}?" if re.match(_KEY, fixed) else ""
            report.add(what, key_node, f"{path}.{key}", hint)


def check_environment(node: Node | None, path: str, report: Report) -> None:
    """Check that an environment that is written out is an image or a build context."""
    if isinstance(node, Mapping):
        values = {key: plain(value) for key, _, value in node}
        check_recipe(values, node, path, report)


# Checks between the nodes of a pipeline: bindings and required inputs.


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
            # Those that every job has are listed too.
            known = dict.fromkeys((*_list_names(outputs), *RESERVED_OUTPUTS))
            hint = did_you_mean(steps[4], known) or "known: " + ", ".join(known)
            return f"{written}: {steps[2]!r} has no output {steps[4]!r}", hint
    return "", ""


def _has(group: Node | None, name: str) -> bool:
    return isinstance(group, Mapping) and name in group


def _list_known(group: Node | None) -> str:
    return "known: " + (", ".join(_list_names(group)) or "none")


def _list_names(group: Node | None) -> list[str]:
    return [str(name) for name in group.entries] if isinstance(group, Mapping) else []


def _check_required(node: Mapping, path: str, report: Report) -> None:
    """Report inputs that the node's component needs and that have no value."""
    component = node.get("component")
    declared = _declared_inputs(component, report.base_path)
    given = node.get("inputs")
    for name, _, declaration in declared if declared is not None else ():
        is_free = isinstance(declaration, Mapping) and (
            "default" in declaration or str(declaration.value_of("optional")).lower() == "true"
        )
        if not is_free and not _has(given, str(name)):
            what = f"{path} needs the input {name!r} of its component"
            report.add(what, given or node, f"{path}.inputs.{name}")


def _declared_inputs(component: Node | None, base_path: str) -> Mapping | None:
    if isinstance(component, Scalar) and isinstance(component.value, str):
        if component.value.startswith("azureml:"):
            return None
        try:
            component = read_yaml(os.path.join(base_path, component.value.removeprefix("file:")))
        except SpecError:
            return None
    inputs = component.get("inputs") if isinstance(component, Mapping) else None
    return inputs if isinstance(inputs, Mapping) else None


# Inputs that ``--set inputs.x=...`` adds to a job, and that nothing in the job uses: most often a misspelled name.


_PATH = re.compile(r"((?:jobs\.[^.]+\.)*)inputs\.([^.\[]+)")


def list_unused(root: Mapping, overrides: Iterable[dict[str, Any]]) -> list[Problem]:
    """Return a problem for each input that the overrides, which are applied, have added and nothing refers to."""
    paths = dict.fromkeys(str(path) for override in overrides for path in override)
    return [problem for path in paths if (problem := _explain(root, path))]


def _explain(root: Mapping, path: str) -> Problem | None:
    found = _PATH.match(path)
    holder = _find_holder(root, found[1]) if found else None
    inputs = holder.get("inputs") if holder is not None else None
    if not found or holder is None or not isinstance(inputs, Mapping) or found[2] not in inputs:
        return None
    name = found[2]
    key, value = inputs.entries[name]
    # A key of the file has its place; a component declares its inputs elsewhere, and refuses others itself.
    if key.source is not None or "component" in holder or isinstance(holder.get("trial"), Scalar):
        return None
    if (isinstance(value, Scalar) and value.value is None) or _is_mentioned(holder, name):
        return None
    others = [str(other) for other, where, _ in inputs if where.source is not None]
    without = "it has no inputs: to change an argument, set the command (--set command='...')"
    hint = did_you_mean(name, others) or ("inputs of the job: " + ", ".join(others) if others else without)
    what = f"{found[1]}inputs.{name} is set, but the job neither declares nor uses this input"
    return Problem(what, path=path, hint=hint)


def _find_holder(root: Mapping, steps: str) -> Mapping | None:
    """Return the job, or the step of a pipeline, that a path such as ``jobs.train.`` leads to."""
    node: Node | None = root
    for step in filter(None, steps.split(".")):
        node = node.get(step) if isinstance(node, Mapping) else None
    return node if isinstance(node, Mapping) else None


def _is_mentioned(holder: Mapping, name: str) -> bool:
    pattern = re.compile(rf"(?:inputs\.|AZURE_ML_INPUT_){re.escape(name)}(?![\w-])")
    left: list[Node] = [holder]
    while left:
        node = left.pop()
        if isinstance(node, Mapping):
            left += [value for _, _, value in node]
        elif isinstance(node, Sequence):
            left += node.items
        elif isinstance(node.value, str) and pattern.search(node.value):
            return True
    return False
