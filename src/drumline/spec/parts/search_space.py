"""
The values that each hyperparameter of a sweep may have: azure-ai-ml's expressions, with its positional arguments.

How values are drawn from them is ``drumline.plan.search.draw``'s to say.
Source: https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-sweep#parameter-expressions
"""

from __future__ import annotations

import math
from contextlib import suppress

from drumline.contract.errors import SpecError
from drumline.spec import fields
from drumline.spec.entity import Attributes, Entity
from drumline.spec.fields import list_whole
from drumline.spec.foreign_parts import ours
from drumline.spec.keywords import refuse_unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any


class ParameterExpression(Entity):
    """The root; ``type`` is fixed by the class."""

    type = ""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, _plain(value))


class Choice(ParameterExpression):
    """
    One of ``values``: texts, numbers, booleans, or mappings that hold further hyperparameters by name.

    Any iterable will do, ``range(1, 5)`` for one.
    """

    _fields = ("type", "values")
    type = "choice"

    def __init__(self, values: Iterable[Any] | None = None, **kwargs: Any) -> None:
        refuse_unknown(kwargs, self._fields, "search_space")
        self.values = None if values is None else [_item(value) for value in values]


class _Between(ParameterExpression):
    _fields: tuple[str, ...] = ("type", *fields.BETWEEN)

    def __init__(self, min_value: float | None = None, max_value: float | None = None, **kwargs: Any) -> None:
        refuse_unknown(kwargs, self._fields, "search_space")
        self.min_value = min_value
        self.max_value = max_value


class _BetweenSteps(_Between):
    _fields = ("type", *fields.BETWEEN_STEPS)

    def __init__(
        self,
        min_value: float | None = None,
        max_value: float | None = None,
        q: float | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, self._fields, "search_space")
        super().__init__(min_value, max_value)
        self.q = q


class Uniform(_Between):
    type = "uniform"


class LogUniform(_Between):
    """``min_value`` and ``max_value`` are the logarithms of the bounds."""

    type = "loguniform"


class QUniform(_BetweenSteps):
    type = "quniform"


class QLogUniform(_BetweenSteps):
    """A LogUniform in steps of ``q``."""

    type = "qloguniform"


class _Bell(ParameterExpression):
    _fields: tuple[str, ...] = ("type", *fields.BELL)

    def __init__(self, mu: float | None = None, sigma: float | None = None, **kwargs: Any) -> None:
        refuse_unknown(kwargs, self._fields, "search_space")
        self.mu = mu
        self.sigma = sigma


class _BellSteps(_Bell):
    _fields = ("type", *fields.BELL_STEPS)

    def __init__(
        self,
        mu: float | None = None,
        sigma: float | None = None,
        q: float | None = None,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(kwargs, self._fields, "search_space")
        super().__init__(mu, sigma)
        self.q = q


class Normal(_Bell):
    type = "normal"


class LogNormal(_Bell):
    """``mu`` and ``sigma`` are those of the logarithm."""

    type = "lognormal"


class QNormal(_BellSteps):
    type = "qnormal"


class QLogNormal(_BellSteps):
    type = "qlognormal"


class Randint(ParameterExpression):
    """A whole number from 0, below ``upper``."""

    _fields = ("type", *fields.RANDINT)
    _whole = list_whole(fields.RANDINT)
    type = "randint"

    def __init__(self, upper: int | None = None, **kwargs: Any) -> None:
        refuse_unknown(kwargs, self._fields, "search_space")
        self.upper = upper


CLASSES: dict[str, type[ParameterExpression]] = {
    kind.type: kind
    for kind in (
        Choice,
        Uniform,
        LogUniform,
        QUniform,
        QLogUniform,
        Normal,
        LogNormal,
        QNormal,
        QLogNormal,
        Randint,
    )
}


class SearchSpace(Attributes):
    """The expressions by hyperparameter; a dictionary that is put in becomes a ParameterExpression."""

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, to_expression(name, value))


def to_expression(name: str, value: Any) -> ParameterExpression:
    """Return a search space from a mapping. Raises SpecError if it is none."""
    value = ours(value)
    if isinstance(value, ParameterExpression):
        return value
    if not isinstance(value, dict):
        what = f"search_space.{name} cannot be of type {type(value).__name__!r}"
        raise SpecError(what, "give Choice([...]), Uniform(...) or {'type': 'uniform', ...}")
    kind = CLASSES.get(str(value.get("type")).lower())
    if kind is None:
        what = f"search_space.{name}: {value.get('type')!r} is not a type of search space"
        raise SpecError(what, "one of " + ", ".join(map(repr, CLASSES)))
    return kind(**{key: item for key, item in value.items() if key != "type"})


def parse_value(text: str) -> Any:
    """
    Return a value of a command line as a number where it is a finite one, else as text without blanks around it.

    >>> [parse_value(text) for text in ("8", " 1e-3", "nan", "adam ")]
    [8, 0.001, 'nan', 'adam']
    """
    text = text.strip()
    for kind in (int, float):
        with suppress(ValueError):
            number = kind(text)
            return number if math.isfinite(number) else text
    return text


def _plain(value: Any) -> Any:
    """Return a number of numpy as one of Python."""
    return value.item() if hasattr(value, "item") else value


def _item(value: Any) -> Any:
    """Return a value of a choice; the mappings in a mapping are further search spaces."""
    if not isinstance(value, dict):
        return _plain(value)
    return {
        name: to_expression(name, inner) if isinstance(inner, dict) else inner
        for name, inner in value.items()
    }
