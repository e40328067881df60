"""
The way from numbers between 0 and 1 to hyperparameters, and back.

Every expression is the inverse of its distribution function, so that whoever gives the numbers decides how the space
is searched: at random, by a Sobol sequence, or by Optuna.
Source of the forms: https://learn.microsoft.com/azure/machine-learning/how-to-tune-hyperparameters#define-the-search-space
and, for randint, https://learn.microsoft.com/python/api/azureml-train-core/azureml.train.hyperdrive.parameter_expressions
"""

from __future__ import annotations

import math
from itertools import product
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import PlanError
from drumline.spec.parts.search import ParameterExpression

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Space = Mapping[str, ParameterExpression]

_LEAST = 1e-12
"""So far from 0 and 1 stays what becomes a normal distribution's value, which is infinite there."""


class Numbers:
    """
    Numbers from 0 to 1 for a trial. ``path``: of the expression, ``lr`` or, within the second value of a choice,
    ``model.1.lr``.
    """

    def index(self, path: str, count: int) -> int:
        """Return which of ``count`` values of a choice to take."""
        return min(int(self.fraction(path) * count), count - 1)

    def fraction(self, path: str) -> float:
        """Return a number from 0 to 1."""
        raise NotImplementedError


class Constant(Numbers):
    """The same one for all."""

    def __init__(self, fraction: float) -> None:
        self._fraction = fraction

    def fraction(self, path: str) -> float:
        return self._fraction


def draw(space: Space, numbers: Numbers, base: float = math.e) -> dict[str, Any]:
    """
    Return a value for each hyperparameter; for a choice's mapping, a dictionary of values.

    base: of the log forms. Raises PlanError for a value that no machine can hold.
    """
    return {name: _draw(expression, name, numbers, base) for name, expression in space.items()}


def fractions_of(space: Space, params: Mapping[str, Any], base: float = math.e) -> dict[str, float]:
    """
    Return by path the number from which each value can have come: for a choice the index, else a fraction.

    What did not come from this space is left out.
    """
    found: dict[str, float] = {}
    for name, expression in space.items():
        if name in params:
            _locate(expression, name, params[name], base, found)
    return found


def by_path(space: Space, prefix: str = "") -> dict[str, ParameterExpression]:
    """Return all expressions, also those that exclude each other."""
    found = {}
    for name, expression in space.items():
        path = prefix + name
        found[path] = expression
        for index, value in enumerate(getattr(expression, "values", None) or ()):
            if isinstance(value, dict):
                found |= by_path(_inner(value), f"{path}.{index}.")
    return found


def combinations(space: Space, prefix: str = "") -> Iterator[dict[str, Any]]:
    """Yield all combinations, the last hyperparameter changing first. Raises PlanError if one is not a choice."""
    names = list(space)
    for values in product(*(list(_every(expression, prefix + name)) for name, expression in space.items())):
        yield dict(zip(names, values, strict=True))


def _every(expression: ParameterExpression, path: str) -> Iterator[Any]:
    if expression.type != "choice":
        raise PlanError(
            f"search_space.{path}: grid sampling takes choices alone, and this is {expression.type!r}",
            "list its values in a choice, or use sampling_algorithm: random",
            path=f"search_space.{path}.type",
        )
    for index, value in enumerate(expression.values or ()):  # type: ignore[attr-defined]
        if isinstance(value, dict):
            for inner in combinations(_inner(value), f"{path}.{index}."):
                yield {**value, **inner}
        else:
            yield value


def _inner(value: dict[str, Any]) -> dict[str, ParameterExpression]:
    return {name: item for name, item in value.items() if isinstance(item, ParameterExpression)}


def _draw(expression: Any, path: str, numbers: Numbers, base: float) -> Any:
    if expression.type == "choice":
        index = numbers.index(path, len(expression.values))
        value = expression.values[index]
        if not isinstance(value, dict):
            return value
        inner = {
            name: _draw(item, f"{path}.{index}.{name}", numbers, base) for name, item in _inner(value).items()
        }
        return {**value, **inner}
    fraction = min(max(numbers.fraction(path), 0.0), 1.0)
    if expression.type == "randint":
        return min(int(fraction * expression.upper), expression.upper - 1)
    try:
        return _value(expression, fraction, base)
    except (OverflowError, ValueError) as error:
        raise PlanError(
            f"search_space.{path}: it has values that are too large for a number",
            "the bounds of log forms are logarithms: log(0.001) for 0.001",
            path=f"search_space.{path}",
        ) from error


def _value(expression: Any, fraction: float, base: float) -> float:
    kind, q = expression.type, getattr(expression, "q", None)
    if kind.endswith("uniform"):
        least, most = float(expression.min_value), float(expression.max_value)
        value = min(max(least + fraction * (most - least), least), most)
    else:
        inside = min(max(fraction, _LEAST), 1 - _LEAST)
        value = NormalDist(expression.mu, expression.sigma).inv_cdf(inside)
    if "log" in kind:
        value = math.exp(value) if base == math.e else base**value
    if not math.isfinite(value):
        raise OverflowError
    return value if q is None else _in_steps(value, q)


def _in_steps(value: float, q: float) -> float:
    """Round to steps of ``q``: a whole number where ``q`` is one; without the noise of binary fractions."""
    steps = round(value / q)
    return steps * q if isinstance(q, int) else float(f"{steps * q:.12g}")


def _locate(expression: Any, path: str, value: Any, base: float, found: dict[str, float]) -> None:
    if expression.type == "choice":
        for index, candidate in enumerate(expression.values):
            if _matches(candidate, value):
                found[path] = index
                for name, item in _inner(candidate).items() if isinstance(candidate, dict) else ():
                    _locate(item, f"{path}.{index}.{name}", value[name], base, found)
                return
    elif isinstance(value, (int, float)):
        fraction = _fraction(expression, float(value), base)
        found[path] = min(max(fraction, 0.0), 1.0)


def _matches(candidate: Any, value: Any) -> bool:
    if not isinstance(candidate, dict):
        return type(candidate) is type(value) and bool(candidate == value)
    if not isinstance(value, dict) or candidate.keys() != value.keys():
        return False
    fixed = candidate.keys() - _inner(candidate).keys()
    return all(candidate[name] == value[name] for name in fixed)


def _fraction(expression: Any, value: float, base: float) -> float:
    if expression.type == "randint":
        return (value + 0.5) / float(expression.upper)
    if "log" in expression.type:
        if value <= 0:  # Rounded down to no step at all.
            return 0.0
        value = math.log(value, base)
    if expression.type.endswith("uniform"):
        width = expression.max_value - expression.min_value
        return float((value - expression.min_value) / width) if width else 0.5
    return NormalDist(expression.mu, expression.sigma).cdf(value)
