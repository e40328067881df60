"""The code of a step, taken when its pipeline is submitted: a later change of the folder is not this run's."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError
from drumline.contract.folder import home
from drumline.spec import paths
from drumline.staging import snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.spec.job import Job


def take(job: Job) -> dict[str, str]:
    """Snapshots of the job's code, by the place that it has within the job. Raises PlanError."""
    return taken(job)[0]


def taken(job: Job) -> tuple[dict[str, str], list[str]]:
    """As ``take``, and warnings."""
    from drumline.control.submit import code_of, slow_code, warnings_of_code

    code: Any = getattr(job, "code", None)
    if job.type != "command" or (not code and not job._includes):
        return {}, []
    root = code_of(job) if code else ""
    if root and not os.path.exists(root):
        raise PlanError(f"code: there is no {root}", path="code")
    found = (
        _with_includes(root, job._includes) if job._includes else snapshot.take(root, home(), slow_code.get())
    )
    return {"code": found.digest}, warnings_of_code(found)


def merged_with(root: str, includes: Sequence[str]) -> str:
    """The snapshot of the code folder ``root``, empty for none, with those next to it. Raises PlanError."""
    return _with_includes(root, includes).digest


def _with_includes(root: str, includes: Sequence[str]) -> snapshot.Taken:
    with tempfile.TemporaryDirectory(prefix="drumline-code-") as above:
        merged = os.path.join(above, "code")
        try:
            if root:
                snapshot.lay_out(home(), snapshot.take(root, home()).digest, merged)
            else:
                os.mkdir(merged)
            for path in includes:
                _include(path, merged)
        except OSError as error:
            what = f"additional_includes: {error.strerror or error}: {error.filename}"
            raise PlanError(what, path="additional_includes") from error
        return snapshot.take(merged, home(), known_as="\0".join((root, *includes)))


def _include(path: str, merged: str) -> None:
    """Source: additional_includes lay a file or a folder next to the code, under its own name."""
    if paths.is_remote(path) or not os.path.exists(path):
        raise PlanError(f"additional_includes: there is no {path}", path="additional_includes")
    target = os.path.join(merged, os.path.basename(path.rstrip("/")))
    if os.path.lexists(target):
        what = f"additional_includes: {os.path.basename(target)!r} is in the code already"
        raise PlanError(what, path="additional_includes")
    if os.path.isdir(path):
        # As of code: links are followed within it alone, and what an ignore file names is left out.
        snapshot.lay_out(home(), snapshot.take(path, home()).digest, target)
    else:
        shutil.copy2(path, target)
