"""A job that may be the call of a component, and that can be registered as one where it is not."""

from __future__ import annotations

from drumline.spec.job import Job

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Calling(Job):
    @property
    def component(self) -> Any:
        """The component that it calls, or what refers to one; else what the job itself would be as one."""
        own = self.called
        if own is not None:
            return own
        from drumline.spec.implied_component import of_job

        return of_job(self)  # type: ignore[arg-type]

    @component.setter
    def component(self, value: Any) -> None:
        self.__dict__["component"] = value

    @property
    def called(self) -> Any:
        """The component that it calls; None for none."""
        return self.__dict__.get("component")

    def _values(self) -> dict[str, Any]:
        values = {
            name: self.called if name == "component" else getattr(self, name, None) for name in self._fields
        }
        return {name: value for name, value in values.items() if value is not None}
