"""The mistakes in a job, whether it came from YAML or was built in Python."""

from __future__ import annotations

from drumline.spec.kinds.report import Report
from drumline.spec.reading.source import problem_at
from drumline.spec.reading.tree import Mapping, Scalar, find, plain, wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from drumline.contract.errors import Problem
    from drumline.spec.jobs.job import Job


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
    from drumline.spec.jobs.job import to_dict

    report = Report(job.base_path)
    tree = wrap(to_dict(job))
    assert isinstance(tree, Mapping)
    if job.type == "command":
        from drumline.spec.jobs.command import PYTHON_COMMAND_JOB
        from drumline.spec.validation.checks import check_command

        PYTHON_COMMAND_JOB.check(tree, "", report)
        check_command(tree, report)
    elif job.type == "sweep":
        from drumline.spec.jobs.sweep import SWEEP_JOB
        from drumline.spec.validation.checks import check_sweep

        SWEEP_JOB.check(tree, "", report)
        check_sweep(tree, report)
    elif job.type == "parallel":
        from drumline.spec.jobs.pipeline_tables import PARALLEL_JOB

        PARALLEL_JOB.check(tree, "", report)
    else:
        from drumline.spec.jobs.pipeline_tables import PIPELINE_JOB
        from drumline.spec.validation.pipeline_checks import check_pipeline

        PIPELINE_JOB.check(tree, "", report)
        check_pipeline(tree, report, getattr(job, "_optional", frozenset()))
    problems = [_locate(problem, job, tree) for problem in report.problems]
    return ValidationResult(problems, _warnings(job))


def locate_problems(problems: Iterable[Problem], job: Job) -> list[Problem]:
    """Return the problems with file and line, if what they are about is still as the job's file has it."""
    from drumline.spec.jobs.job import to_dict

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


def _warnings(job: Job) -> list[str]:
    from drumline.spec.keywords import unknown_attributes
    from drumline.spec.placeholders import legacy_forms

    warnings = [*job._warnings, *unknown_attributes(job)]
    command = getattr(job, "command", None)
    if isinstance(command, str) and not isinstance(_read_command(job), str):
        warnings += legacy_forms(command)
    return warnings


def _read_command(job: Job) -> object:
    node = job._root.get("command") if job._root else None
    return node.value if isinstance(node, Scalar) else None
