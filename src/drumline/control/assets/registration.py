"""The named outputs of a pipeline or a sweep become assets."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import DrumlineError, Problem
from drumline.contract.folder import home
from drumline.contract.plan import Registration
from drumline.supervisor.job import preparing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from drumline.contract.folder import RunFolder

_MODELS = ("custom_model", "mlflow_model", "triton_model")


def register_outputs(folder: RunFolder, graph: Mapping[str, Any]) -> None:
    """Register the named outputs. A failure to do so fails no job; ``drumline job show`` says why. Raises OSError."""
    wanted = []
    for name, output in (graph.get("outputs") or {}).items():
        if not isinstance(output, dict) or not output.get("name"):
            continue
        place = os.path.realpath(os.path.join(folder.named_outputs, name))
        kind = str(output.get("type") or "uri_folder").lower()
        if kind in ("uri_file", "uri_folder"):
            # What the step has declared goes before what the pipeline says, or leaves out.
            kind = "uri_file" if os.path.isfile(place) else "uri_folder"
        asset, version = str(output["name"]), str(output.get("version") or "")
        said = str(output.get("description") or "")
        wanted.append(Registration(name, _noun(kind), asset, version, kind, place, home(), said))
    preparing.register(folder, wanted)


def find_taken_versions(job: Any) -> Iterator[Problem]:
    """Yield a problem for each output of a pipeline whose version exists already."""
    from drumline.control.assets import assets

    for name, output in job.outputs.items():
        if not output.name or not output.version:
            continue
        noun = _noun(str(output.type or "").lower())
        try:
            assets.get(noun, output.name, version=str(output.version))
        except DrumlineError:
            continue
        path = f"outputs.{name}.version"
        what = f"{path}: there is version {output.version!r} of {noun} {output.name!r} already"
        yield Problem(what, path=path, hint="leave `version` out for the next one")


def _noun(kind: str) -> str:
    return "model" if kind in _MODELS else "data"
