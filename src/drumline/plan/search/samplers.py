"""
The hyperparameters of the next trial.

A sampler remembers nothing: it is asked with all earlier trials, and the same trials give the same answer. So whoever
looks after a sweep can be replaced at any time.
"""

from __future__ import annotations

import json
import random
import zlib
from itertools import islice
from typing import TYPE_CHECKING, Any

from drumline.contract import extras
from drumline.contract.errors import PlanError
from drumline.contract.record import NamedTuple
from drumline.plan.search import draw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from drumline.plan.search.sweep_request import Search

_MISSES = 100
"""So many draws in a row that were there before mean that there is nothing new."""


class Tried(NamedTuple):
    """An earlier trial. ``objective``: None while it has none, or when it failed."""

    params: dict[str, Any]
    objective: float | None = None
    is_over: bool = False


def next_params(search: Search, tried: Sequence[Tried]) -> dict[str, Any] | None:
    """
    Return those of trial number ``len(tried)``, untried before; None when the space has no more.

    Raises PlanError for a space that the algorithm cannot search.
    """
    if search.algorithm == "grid":
        return next(islice(draw.combinations(search.space), len(tried), None), None)
    seen = {_key(one.params) for one in tried}
    for attempt in range(_MISSES):
        params = _draw_params(search, tried, attempt)
        if _key(params) not in seen:
            return params
    # One that was not seen yet, of choices alone: few among many are hard to meet.
    try:
        return next((one for one in draw.combinations(search.space) if _key(one) not in seen), None)
    except PlanError:
        return None


def _key(params: dict[str, Any]) -> str:
    return json.dumps(params, sort_keys=True)


def _draw_params(search: Search, tried: Sequence[Tried], attempt: int) -> dict[str, Any]:
    numbers: draw.Numbers
    if search.algorithm == "bayesian" and attempt == 0:
        numbers = _by_optuna(search, tried)
    elif search.rule == "sobol":
        numbers = _Sobol(search, len(tried) + attempt)
    else:
        numbers = _Random(f"{search.seed}:{len(tried)}:{attempt}")
    return draw.draw(search.space, numbers, search.base)


class _Random(draw.Numbers):
    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - nothing is secret about it

    def fraction(self, path: str) -> float:
        return self._random.random()


class _Sobol(draw.Numbers):
    """
    The point of that number of a scrambled Sobol sequence, with a dimension for each expression.

    Source: https://docs.scipy.org/doc/scipy/reference/generated/scipy.stats.qmc.Sobol.html
    """

    def __init__(self, search: Search, number: int) -> None:
        try:
            from scipy.stats import qmc  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError as error:
            raise _explain(error, "rule: sobol", "sampling_algorithm.rule") from error
        paths = list(draw.by_path(search.space))
        if len(paths) > qmc.Sobol.MAXDIM:
            what = f"search_space: a Sobol sequence has {qmc.Sobol.MAXDIM} dimensions at most"
            raise PlanError(what, "use rule: random", path="sampling_algorithm.rule")
        sequence = qmc.Sobol(max(len(paths), 1), scramble=True, seed=_number_of(search.seed))
        if number:
            sequence.fast_forward(number)
        self._point = dict(zip(paths, map(float, sequence.random(1)[0]), strict=False))

    def fraction(self, path: str) -> float:
        return self._point[path]


def _explain(error: ImportError, what: str, path: str) -> PlanError:
    """Return what is said of a package that was there, and cannot be imported."""
    return PlanError(f"sampling_algorithm: {what}: {error}", extras.install_line("sweep"), path=path)


def _number_of(seed: str) -> int:
    return zlib.crc32(seed.encode())


def _by_optuna(search: Search, tried: Sequence[Tried]) -> draw.Numbers:
    """
    Ask a study in memory for a new trial; the study is told all earlier ones.

    Source: https://optuna.readthedocs.io/en/stable/tutorial/20_recipes/009_ask_and_tell.html
    """
    import warnings

    try:
        import optuna  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise _explain(error, "bayesian", "sampling_algorithm") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        # What is experimental in Optuna 4 is the default of Optuna 5.
        warnings.simplefilter("ignore")
        sampler = optuna.samplers.TPESampler(
            seed=_number_of(f"{search.seed}:{len(tried)}"), constant_liar=True, multivariate=False
        )
        direction = optuna.study.StudyDirection[search.goal.upper()]
        study = optuna.create_study(sampler=sampler, direction=direction)
        for one in tried:
            study.add_trial(_to_study_trial(optuna, search, one))
        return _SuggestedNumbers(study.ask())


def _to_study_trial(optuna: Any, search: Search, one: Tried) -> Any:
    """Convert a trial for the study; one that still runs is told too, so that the next one is not put beside it."""
    state = optuna.trial.TrialState
    located = draw.fractions_of(search.space, one.params, search.base)
    expressions = draw.by_path(search.space)
    distributions = {path: _distribution(optuna, expressions[path]) for path in located}
    has_value = one.objective is not None and one.objective - one.objective == 0
    ended = state.COMPLETE if has_value else state.FAIL
    return optuna.trial.create_trial(
        state=ended if one.is_over else state.RUNNING,
        value=one.objective if has_value and one.is_over else None,
        params=located,
        distributions=distributions,
    )


def _distribution(optuna: Any, expression: Any) -> Any:
    if expression.type == "choice":
        return optuna.distributions.CategoricalDistribution(range(len(expression.values)))
    return optuna.distributions.FloatDistribution(0.0, 1.0)


class _SuggestedNumbers(draw.Numbers):
    """The numbers that Optuna suggests."""

    def __init__(self, trial: Any) -> None:
        self._trial = trial

    def index(self, path: str, count: int) -> int:
        return int(self._trial.suggest_categorical(path, range(count)))

    def fraction(self, path: str) -> float:
        return float(self._trial.suggest_float(path, 0.0, 1.0))
