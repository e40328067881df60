"""The manifests of a job as text, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.engines.kubernetes import objects, pod_plan

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


def render(plan: Plan, folder: RunFolder) -> str:
    """
    Return the manifests that ``submit`` would send, but for the bytes in the Secret. Raises PlanError for what pods
    cannot have.
    """
    import yaml

    pod_plan.check(plan, folder)
    bundle = {
        objects.PACKAGE_FILE: "(Drumline)",
        objects.JOB_FILE: "(the plan and the code)",
        objects.TOKEN_FILE: "(random)",
    }
    if plan.secrets or plan.notify:
        bundle[objects.SECRETS_FILE] = "(the job's secrets)"
    things = [thing for thing in objects.make_objects(plan, folder, bundle) if thing]
    return yaml.safe_dump_all(things, sort_keys=False, width=110)
