"""The manifests of a job as text, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.engines.kubernetes import objects, pod_plan
from drumline.engines.kubernetes.manifests import pod_files

if TYPE_CHECKING:
    from drumline.contract.folder import RunFolder
    from drumline.contract.plan import Plan


def render(plan: Plan, folder: RunFolder) -> str:
    """
    Return the manifests that ``submit`` would send, but for the bytes in the Secret, which are several where the
    code is large. Raises PlanError for what pods cannot have.
    """
    import yaml

    pod_plan.check(plan, folder)
    bundle = {
        pod_files.PACKAGE_FILE: "(Drumline)",
        pod_files.name_part(0): "(the plan and the code)",
        pod_files.TOKEN_FILE: "(random)",
    }
    if plan.secrets or plan.notify:
        bundle[pod_files.SECRETS_FILE] = "(the job's secrets)"
    made = objects.make_objects(plan, folder, [bundle], submission="(random)")
    things = [made.supervisor, *made.secrets, made.service, made.nodes, made.group]
    return yaml.safe_dump_all(filter(None, things), sort_keys=False, width=110)
