"""A parallel component: what a parallel job says, with declared inputs and outputs."""

from __future__ import annotations

from drumline.spec.component import Component
from drumline.spec.parallel import SETTINGS, Parallel, RetrySettings, RunFunction, to_retry_settings, to_task
from drumline.spec.resources import to_resources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ParallelComponent(Component):
    """A call with inputs gives a node of a pipeline."""

    type = "parallel"
    _fields = (*Component._fields, *SETTINGS, "resources")

    def __init__(
        self,
        *,
        task: Any = None,
        retry_settings: Any = None,
        resources: Any = None,
        instance_count: int | None = None,
        **kwargs: Any,
    ) -> None:
        given = {name: kwargs.pop(name, None) for name in SETTINGS if name not in ("task", "retry_settings")}
        super().__init__(**kwargs)
        self.mini_batch_size: str | int | None = None
        self.partition_keys: list[str] | None = None
        self.input_data: str | None = None
        self.logging_level: str | None = None
        self.max_concurrency_per_instance: int | None = None
        self.error_threshold: int | None = None
        self.mini_batch_error_threshold: int | None = None
        for name, value in given.items():
            setattr(self, name, value)
        self.task: RunFunction | None = to_task(task)
        self.retry_settings: RetrySettings | None = to_retry_settings(retry_settings)
        flat = None if instance_count is None else {"instance_count": instance_count}
        self.resources = to_resources(flat if resources is None else resources)

    def __call__(self, *args: Any, **kwargs: Any) -> Parallel:
        """Raises SpecError for an input that is not declared."""
        return Parallel(component=self, inputs=self._given(args, kwargs))
