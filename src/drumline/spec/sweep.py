"""A sweep job: many trials of one command over a search space. Read and checked, not yet run."""

from __future__ import annotations

from drumline.spec.identity import to_identity
from drumline.spec.io import Inputs, Outputs, fill
from drumline.spec.job import Job, to_services
from drumline.spec.resources import to_queue_settings, to_resources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class SweepJob(Job):
    """
    ``trial``, ``search_space``, ``objective``, ``limits``...

    are mappings with the keys of YAML.
    """

    type = "sweep"
    _fields = (
        "type",
        "name",
        "display_name",
        "experiment_name",
        "description",
        "tags",
        "properties",
        "trial",
        "search_space",
        "objective",
        "sampling_algorithm",
        "early_termination",
        "limits",
        "compute",
        "inputs",
        "outputs",
        "resources",
        "queue_settings",
        "identity",
        "services",
    )

    def __init__(  # noqa: PLR0913
        self,
        *,
        trial: Any = None,
        search_space: dict[str, Any] | None = None,
        objective: Any = None,
        sampling_algorithm: Any = None,
        early_termination: Any = None,
        limits: Any = None,
        inputs: dict[str, Any] | None = None,
        outputs: dict[str, Any] | None = None,
        resources: Any = None,
        queue_settings: Any = None,
        identity: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.trial = trial
        self.search_space = search_space
        self.objective = objective
        self.sampling_algorithm = sampling_algorithm
        self.early_termination = early_termination
        self.limits = limits
        self.inputs: Inputs = inputs  # type: ignore[assignment]
        self.outputs: Outputs = outputs  # type: ignore[assignment]
        self.resources = resources
        self.queue_settings = queue_settings
        self.identity = identity

    @staticmethod
    def _converters() -> dict[str, Any]:
        return _CONVERTERS


_CONVERTERS: dict[str, Any] = {
    "inputs": lambda value: fill(Inputs(), value),
    "outputs": lambda value: fill(Outputs(), value),
    "resources": to_resources,
    "queue_settings": to_queue_settings,
    "identity": to_identity,
    "services": to_services,
}
