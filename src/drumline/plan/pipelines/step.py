"""The steps of a pipeline as planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.record import NamedTuple

if TYPE_CHECKING:
    from drumline.spec.jobs.job import Job


class Step(NamedTuple):
    name: str
    job: Job
    """Without a component; its inputs may still be bindings."""

    needs: tuple[str, ...]
    """The steps whose outputs it reads."""

    publishes: dict[str, str]
    """Its output to the pipeline's output that it is."""

    inner: Graph | None = None
    """Of a pipeline."""

    doubts: tuple[str, ...] = ()
    """Of its inputs, to be warned about."""


class Graph(NamedTuple):
    steps: tuple[Step, ...]
    """Each one after those that it needs."""

    doubts: tuple[str, ...] = ()
    """Of the inputs of the pipeline itself, where it is the call of a component."""

    def step(self, name: str) -> Step:
        return next(step for step in self.steps if step.name == name)
