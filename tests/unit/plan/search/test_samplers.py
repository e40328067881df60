"""The next trial, and the one after whoever asked was replaced."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumline.contract.errors import PlanError
from drumline.plan.search import samplers
from drumline.plan.search.samplers import Tried, next_params
from drumline.plan.search.sweep_request import Search
from drumline.sweep import Choice, LogUniform, QUniform, Randint, Uniform

SPACE = {"lr": LogUniform(-7, -1), "batch": Choice([16, 32, 64]), "layers": QUniform(1, 8, 1)}


def search(algorithm="random", space=None, **kwargs) -> Search:
    return Search(space or SPACE, algorithm, **{"goal": "minimize", "seed": "7", **kwargs})


def tried(asked: Search, count: int, objective=lambda params: 1.0) -> list[Tried]:
    found: list[Tried] = []
    for _ in range(count):
        params = next_params(asked, found)
        if params is None:
            break
        found.append(Tried(params, objective(params), is_over=True))
    return found


def params_of(found: list[Tried]) -> list[dict]:
    return [one.params for one in found]


@pytest.mark.parametrize("rule", ["random", "sobol"])
def test_the_same_seed_gives_the_same_trials_and_another_others(rule):
    if rule == "sobol":
        pytest.importorskip("scipy")
    first = params_of(tried(search(rule=rule), 6))
    assert first == params_of(tried(search(rule=rule), 6))
    assert first != params_of(tried(search(rule=rule, seed="8"), 6))


@settings(max_examples=20)
@given(st.integers(0, 6), st.sampled_from(["random", "grid"]))
def test_whoever_asks_next_goes_on_where_the_last_one_was(known, algorithm):
    asked = search(algorithm, {"a": Choice([1, 2, 3]), "b": Choice(["x", "y", "z"])})
    whole = tried(asked, 9)
    assert next_params(asked, whole[:known]) == whole[known].params
    assert len({str(one) for one in params_of(whole)}) == 9


def test_the_results_of_trials_change_nothing_at_random():
    early = next_params(search(), tried(search(), 3, lambda _: 1.0))
    assert early == next_params(search(), tried(search(), 3, lambda _: math.nan))


def test_a_grid_ends_when_it_is_exhausted():
    asked = search("grid", {"a": Choice([1, 2]), "b": Choice([3])})
    assert params_of(tried(asked, 9)) == [{"a": 1, "b": 3}, {"a": 2, "b": 3}]


def test_nothing_is_tried_twice_and_a_small_space_ends():
    asked = search(space={"a": Choice([1, 2]), "b": Randint(2)})
    assert len(tried(asked, 9)) == 4


def test_the_last_of_many_choices_is_found():
    asked = search(space={"a": Choice(range(40)), "b": Choice(range(25))})
    whole = [Tried({"a": a, "b": b}, 1.0, is_over=True) for a in range(40) for b in range(25)]
    assert next_params(asked, [*whole[:500], *whole[501:]]) == whole[500].params
    assert next_params(asked, whole) is None


def test_sobol_fills_the_space_more_evenly_than_chance():
    pytest.importorskip("scipy")
    asked = search(rule="sobol", space={"x": Uniform(0, 1)})
    eighths = [int(one["x"] * 8) for one in params_of(tried(asked, 8))]
    assert sorted(eighths) == list(range(8))


class TestBayesian:
    """Through Optuna."""

    @pytest.fixture(autouse=True)
    def _optuna(self):
        pytest.importorskip("optuna")

    def test_the_same_trials_give_the_same_next_one(self):
        asked = search("bayesian")
        whole = tried(asked, 14, lambda params: abs(math.log(params["lr"]) + 4))
        assert params_of(whole) == params_of(tried(asked, 14, lambda params: abs(math.log(params["lr"]) + 4)))
        assert next_params(asked, whole[:12]) == whole[12].params

    @pytest.mark.parametrize(("goal", "sign"), [("minimize", 1), ("maximize", -1)])
    def test_it_comes_near_what_it_looks_for(self, goal, sign):
        asked = search("bayesian", {"x": Uniform(0, 1), "y": Choice(["a", "b"])}, goal=goal)
        whole = tried(asked, 40, lambda p: sign * ((p["x"] - 0.7) ** 2 + (p["y"] == "a")))
        late = params_of(whole[-10:])
        assert sum(one["y"] == "b" for one in late) >= 8
        assert sum(abs(one["x"] - 0.7) < 0.2 for one in late) >= 7

    def test_trials_under_way_failed_ones_and_odd_values_are_told_too(self):
        asked = search("bayesian")
        whole = tried(asked, 12, lambda params: params["lr"])
        odd = [Tried(params_of(whole)[0]), Tried(params_of(whole)[1], math.nan, is_over=True), *whole[2:]]
        found = next_params(asked, odd)
        assert found is not None
        assert found not in params_of(whole)

    def test_nested_spaces_are_searched(self):
        space = {"model": Choice([{"kind": "a", "lr": Uniform(0, 1)}, {"kind": "b", "depth": Randint(50)}])}
        whole = tried(search("bayesian", space), 25, lambda p: p["model"].get("lr", 5.0))
        assert sum(one["model"]["kind"] == "a" for one in params_of(whole[-8:])) >= 6

    def test_a_small_space_ends(self):
        assert len(tried(search("bayesian", {"a": Choice([1, 2]), "b": Choice([1, 2])}), 9)) == 4


def test_a_sampler_is_quick_at_the_most_trials():
    assert samplers._MISSES == 100
    whole = [Tried({"lr": 0.1 + n, "batch": 16, "layers": 1}, 1.0, is_over=True) for n in range(999)]
    assert next_params(search(), whole) is not None


@pytest.mark.parametrize(
    ("package", "asked"),
    [("scipy.stats", search(rule="sobol")), ("optuna", search("bayesian"))],
    ids=["scipy", "optuna"],
)
def test_a_package_that_cannot_be_imported_is_a_refusal(monkeypatch, package, asked):
    """It may have been there when the sweep was submitted, whose driver is not to end with its trials."""
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(PlanError, match=f"sampling_algorithm: .*import of {package} halted"):
        next_params(asked, [])
