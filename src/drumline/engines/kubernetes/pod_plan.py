"""The plan as the pods read it: what lies in the run folder here lies in the run folder there."""

from __future__ import annotations

import json
import os
import urllib.parse
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError, Problem
from drumline.contract.plan import Plan, is_below
from drumline.engines.kubernetes import frames, objects

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder

INPUTS = os.path.join(objects.HOME, "given-inputs")
"""Where local inputs come to a pod, before they are copied to their places."""

_OUTPUT = "AZURE_ML_OUTPUT_"


def check(plan: Plan, folder: RunFolder) -> None:
    """Refuse what a job cannot have here. Raises PlanError that names each."""
    wrong = []
    if not plan.compute.get("image"):
        wrong.append(
            Problem("image: the compute names none", hint="image: python:3.12, or one with your packages")
        )
    most = plan.compute.get("max_instances")
    if most and len(plan.nodes) > int(most):
        what = f"resources.instance_count: {len(plan.nodes)} nodes, and the compute gives {most}"
        wrong.append(Problem(what, path="resources.instance_count"))
    if plan.asked.instance_type:
        what = "resources.instance_type: a compute on Kubernetes has no instance types"
        wrong.append(
            Problem(what, path="resources.instance_type", hint="cores_per_node and the like of the compute")
        )
    if plan.cwd != folder.code:
        wrong.append(Problem("the pods do not have this folder", hint="code: . in a job file sends it"))
    if plan.build is not None:
        hint = "an image with the packages: image of the compute"
        wrong.append(Problem("environment: none is built in pods", path="environment", hint=hint))
    if plan.host_file:
        what = "drumline.once: the file of hosts that its launcher reads does not reach pods yet"
        wrong.append(Problem(what, path="drumline.once", hint="distribution: {type: mpi} runs mpirun itself"))
    remote = [*(one.name for one in plan.fetches), *(one.name for one in plan.uploads)]
    if remote:
        hint = "a volume of the compute, or the script itself"
        wrong.append(Problem(f"{remote[0]}: remote data does not reach pods yet", path=remote[0], hint=hint))
    if plan.services:
        wrong.append(Problem("services: none run in pods yet", path="services"))
    wrong.extend(_list_unreachable(plan, folder))
    if wrong:
        raise PlanError(wrong)


def _list_unreachable(plan: Plan, folder: RunFolder) -> list[Problem]:
    """List outputs that are to be on this machine alone; inputs are sent (``Engine.list_reached``)."""
    mounted = [str(one["path"]) for one in plan.compute.get("volumes") or ()]
    wrong = []
    for name, value in plan.user_env.items():
        if not name.startswith(_OUTPUT) or not os.path.isabs(value):
            continue
        if not is_below(value, [folder.path, *mounted]):
            what = f"outputs.{name.removeprefix(_OUTPUT)}: the pods do not have {value}"
            hint = (
                "a path below one of a volume of the compute; without a path it is brought here, up to 4 MB"
            )
            wrong.append(Problem(what, path="outputs", hint=hint))
    return wrong


def list_warnings(plan: Plan) -> list[str]:
    """List outputs that may be too large for the way from the pods to here."""
    volumes = [str(volume["path"]) for volume in plan.compute.get("volumes") or ()]
    names = [
        name.removeprefix(_OUTPUT)
        for name, value in plan.user_env.items()
        if name.startswith(_OUTPUT) and os.path.isabs(value) and not is_below(value, volumes)
    ]
    most = frames.MOST_RESULTS >> 20
    return [
        f"outputs.{name}: each pod brings back up to {most} MB of outputs, and leaves larger files out; "
        "path: below a volume of the compute has no such limit"
        for name in names[:1]
    ]


def adapt(plan: Plan, folder: RunFolder) -> Plan:
    """Return the plan with the paths of the pods, and their own PATH."""
    own = plan.user_env.get("PATH")
    search_path = os.environ.get("PATH", "")
    if own and own.endswith(search_path):
        # That of this machine, which the planner put there.
        plan = plan._replace(
            user_env={name: value for name, value in plan.user_env.items() if name != "PATH"}
        )
    volumes = [str(volume["path"]) for volume in plan.compute.get("volumes") or ()]
    copies = tuple(
        copy
        if is_below(copy.source, volumes)
        else copy._replace(source=os.path.join(INPUTS, str(index), os.path.basename(copy.source)))
        for index, copy in enumerate(plan.copies)
    )
    data = _drop_local_runs(json.loads(plan._replace(copies=copies).to_json()))
    return Plan.from_json(json.dumps(_move(data, folder.root, objects.HOME)))


def _drop_local_runs(value: Any) -> Any:
    """Return the value without MLflow's run in files of this machine: a script finds none there, and begins its own."""
    if isinstance(value, list):
        return [_drop_local_runs(one) for one in value]
    if not isinstance(value, dict):
        return value
    is_local = str(value.get("MLFLOW_TRACKING_URI", "")).startswith("file:")
    return {
        key: _drop_local_runs(one)
        for key, one in value.items()
        if not (is_local and key.startswith("MLFLOW_"))
    }


def _move(value: Any, root: str, home: str) -> Any:
    """Return the value with the home of the pods in place of the one here, in all its texts."""
    if isinstance(value, str):
        return value.replace(root, home).replace(urllib.parse.quote(root), home)
    if isinstance(value, list):
        return [_move(one, root, home) for one in value]
    if isinstance(value, dict):
        return {key: _move(one, root, home) for key, one in value.items()}
    return value
