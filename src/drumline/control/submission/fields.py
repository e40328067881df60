"""The fields of a job before it is planned: checked, located in their file, and filled in from its component."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NotFoundError, PlanError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from drumline.spec.jobs.command import Command


def check_fields(job: Any) -> None:
    """Raise SpecError with every field that is wrong by itself."""
    from drumline.spec.jobs.validate import validate

    result = validate(job)
    if not result.passed:
        raise SpecError(list(result.problems))


@contextmanager
def locate_problems(job: Any) -> Iterator[None]:
    """Add file and line to the problems of a PlanError from within, if the job came from a file."""
    try:
        yield
    except PlanError as error:
        if job._root is not None:
            from drumline.spec.jobs.validate import locate_problems

            error.problems = tuple(locate_problems(error.problems, job))
        raise


def find_component(reference: str) -> Any:
    """
    Return the component that ``azureml:name:version`` names; one of ours of the same name and version stands in for a
    registry's, which is not asked. Raises NotFoundError, PlanError.
    """
    from drumline.control.assets import assets
    from drumline.spec.references import AssetReference, parse

    asset = parse(reference)
    if not isinstance(asset, AssetReference):
        raise PlanError(
            f"{reference!r} is not a component that is registered here",
            "azureml:NAME:VERSION, after drumline component create -f FILE",
        )
    label = asset.label or (None if asset.version else "latest")
    try:
        return assets.get("component", asset.name, version=asset.version or None, label=label)
    except NotFoundError as error:
        if not asset.registry:
            raise
        version = f" --version {asset.version}" if asset.version else ""
        line = f"drumline component create -f FILE --name {asset.name}{version}"
        hint = f"to have one of your own stand in for it: {line}"
        what = f"{reference!r} is in a registry of Azure's, which is not asked, and there is no component {asset} here"
        raise NotFoundError(what, hint) from error


def fill_component(job: Command) -> Command:
    """
    Return the job with what its component says, where it is the call of one.

    Raises SpecError, PlanError, NotFoundError.
    """
    if job.__dict__.get("component") is None and job.type != "parallel":
        return job
    if job.type == "parallel":
        check_fields(job)
    from drumline.plan.pipelines import bindings
    from drumline.spec.jobs.steps import fill_component

    filled: Any = fill_component(job, find_component)
    found = bindings.check_whole_job(filled)
    problems = [problem for problem in found if not isinstance(problem, bindings.BindingWarning)]
    filled._warnings += [problem.what for problem in found if isinstance(problem, bindings.BindingWarning)]
    if problems:
        raise PlanError(problems)
    bindings.drop_superfluous(filled)
    return filled  # type: ignore[no-any-return]
