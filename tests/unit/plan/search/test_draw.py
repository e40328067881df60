"""From fractions to hyperparameters: ranges, steps, and the way back."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.contract.errors import PlanError
from drumline.plan.search.draw import Constant, by_path, combinations, draw, fractions_of
from drumline.plan.search.samplers import _Random
from drumline.sweep import (
    Choice,
    LogNormal,
    LogUniform,
    Normal,
    QLogNormal,
    QLogUniform,
    QNormal,
    QUniform,
    Randint,
    Uniform,
)

FRACTIONS = st.floats(0, 1)


def value(expression, fraction, base=math.e):
    return draw({"x": expression}, Constant(fraction), base)["x"]


@pytest.mark.parametrize(
    ("expression", "fraction", "expected"),
    [
        (Uniform(2, 4), 0.25, 2.5),
        (LogUniform(math.log(0.001), math.log(0.1)), 0.5, 0.01),
        (QUniform(1, 10, 2), 0.5, 6),  # 5.5 / 2 = 2.75, so 3 steps
        (QUniform(0, 1, 0.1), 0.33, 0.3),
        (QLogUniform(0, math.log(100), 5), 0.5, 10),
        (Normal(10, 3), 0.5, 10),
        (LogNormal(0, 1), 0.5, 1),
        (QNormal(10, 3, 4), 0.5, 8),  # 2.5 steps: the even one, as round() has it
        (QLogNormal(1, 1, 1), 0.5, 3),
        (Randint(4), 0.0, 0),
        (Randint(4), 0.75, 3),
        (Randint(4), 1.0, 3),
        (Choice(["a", "b"]), 0.5, "b"),
        (Choice(["a", "b"]), 1.0, "b"),
    ],
)
def test_a_fraction_becomes_a_value(expression, fraction, expected):
    assert value(expression, fraction) == pytest.approx(expected)


def test_whole_steps_are_whole_numbers_and_others_have_no_noise():
    assert repr(value(QUniform(1, 10, 1), 0.4)) == "5"
    assert repr(value(QUniform(0, 1, 0.1), 0.3)) == "0.3"


def test_log_forms_have_another_base_where_one_is_given():
    assert value(LogUniform(-3, -1), 0.5, base=10) == pytest.approx(0.01)


@given(FRACTIONS, st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_uniform_stays_between_its_bounds(fraction, least, width):
    assert least <= value(Uniform(least, least + width), fraction) <= least + width


@given(FRACTIONS, st.integers(-100, 100), st.integers(0, 100), st.integers(1, 20))
def test_quniform_is_a_multiple_of_q_within_half_a_step(fraction, least, width, q):
    drawn = value(QUniform(least, least + width, q), fraction)
    assert drawn % q == 0
    assert least - q / 2 <= drawn <= least + width + q / 2


@given(FRACTIONS, st.floats(-50, 50), st.floats(0, 10))
def test_loguniform_is_positive_and_between(fraction, least, width):
    drawn = value(LogUniform(least, least + width), fraction)
    assert math.exp(least) <= drawn <= math.exp(least + width)


@given(FRACTIONS, st.integers(1, 1000))
def test_randint_is_below_upper(fraction, upper):
    drawn = value(Randint(upper), fraction)
    assert isinstance(drawn, int)
    assert 0 <= drawn < upper


@given(FRACTIONS, st.sampled_from([Normal(1, 2), LogNormal(0, 1), QNormal(0, 5, 3), QLogNormal(0, 1, 2)]))
def test_bells_are_finite_even_at_their_ends(fraction, expression):
    assert math.isfinite(value(expression, fraction))


@given(
    st.floats(0.01, 0.99),
    st.sampled_from(
        [
            Uniform(-1, 3),
            LogUniform(-9, -1),
            Normal(0, 2),
            LogNormal(1, 0.5),
            QUniform(0, 1000, 1),
            Randint(500),
        ]
    ),
)
def test_a_value_tells_the_fraction_that_it_came_from(fraction, expression):
    space = {"x": expression}
    found = fractions_of(space, draw(space, Constant(fraction)))
    assert found["x"] == pytest.approx(fraction, abs=0.002)


def test_what_did_not_come_from_a_space_has_no_fraction():
    space = {"a": Choice([1, "1"]), "b": Uniform(0, 1), "c": Uniform(5, 5)}
    assert fractions_of(space, {"a": "1", "b": 7, "c": 5}) == {"a": 1, "b": 1.0, "c": 0.5}
    assert fractions_of(space, {"a": 2, "b": "x", "d": 1}) == {}


NESTED: dict[str, Any] = {
    "model": Choice(
        [
            "none",
            {"kind": "tree", "depth": Choice([1, 2])},
            {"kind": "net", "lr": Uniform(0, 1), "depth": Randint(9)},
        ]
    ),
    "seed": Randint(3),
}


def test_nested_spaces_are_drawn_where_they_are_chosen():
    assert draw(NESTED, Constant(0.0)) == {"model": "none", "seed": 0}
    assert draw(NESTED, Constant(0.5)) == {"model": {"kind": "tree", "depth": 2}, "seed": 1}
    assert draw(NESTED, Constant(0.9)) == {"model": {"kind": "net", "lr": 0.9, "depth": 8}, "seed": 2}
    assert list(by_path(NESTED)) == ["model", "model.1.depth", "model.2.lr", "model.2.depth", "seed"]
    assert fractions_of(NESTED, {"model": {"kind": "net", "lr": 0.25, "depth": 4}}) == {
        "model": 2,
        "model.2.lr": 0.25,
        "model.2.depth": 0.5,
    }


def test_a_grid_has_every_combination_once_and_nested_ones_too():
    space = {"batch": Choice([16, 32]), "model": NESTED["model"].values[1]["depth"]}
    assert list(combinations(space)) == [
        {"batch": batch, "model": depth} for batch in (16, 32) for depth in (1, 2)
    ]
    nested = {"model": Choice(["none", {"kind": "tree", "depth": Choice([1, 2])}])}
    assert list(combinations(nested)) == [
        {"model": "none"},
        {"model": {"kind": "tree", "depth": 1}},
        {"model": {"kind": "tree", "depth": 2}},
    ]


def test_a_grid_of_anything_but_choices_is_refused():
    with pytest.raises(PlanError, match=r"search_space.model.2.lr: grid sampling takes choices alone"):
        list(combinations(NESTED))


def test_values_that_no_number_can_be_are_an_error_that_tells_of_logarithms():
    with pytest.raises(PlanError, match="too large") as raised:
        value(LogUniform(1, 10_000), 0.9)
    assert "logarithms" in raised.value.hint


class TestAgainstSciPy:
    """10,000 draws as a sweep's trials have them."""

    DRAWS = 10_000

    def drawn(self, expression):
        return [draw({"x": expression}, _Random(f"seed:{number}:0"))["x"] for number in range(self.DRAWS)]

    @pytest.mark.parametrize(
        ("expression", "name", "shape"),
        [
            (Uniform(-2, 5), "uniform", (-2, 7)),
            (LogUniform(math.log(1e-4), math.log(0.1)), "loguniform", (1e-4, 0.1)),
            (Normal(3, 2), "norm", (3, 2)),
            (LogNormal(1, 0.5), "lognorm", (0.5, 0, math.e)),
        ],
    )
    def test_it_has_the_distribution_of_its_name(self, expression, name, shape):
        stats = pytest.importorskip("scipy.stats")
        assert stats.kstest(self.drawn(expression), getattr(stats, name)(*shape).cdf).pvalue > 0.01

    @pytest.mark.parametrize(
        ("expression", "name", "shape"),
        [
            (QUniform(1, 10, 2), "uniform", (1, 9)),
            (QLogUniform(0, math.log(100), 5), "loguniform", (1, 100)),
            (QNormal(10, 3, 4), "norm", (10, 3)),
            (QLogNormal(1, 1, 1), "lognorm", (1, 0, math.e)),
            (Randint(7), "uniform", (-0.5, 7)),
        ],
    )
    def test_each_step_is_as_likely_as_what_is_rounded_to_it(self, expression, name, shape):
        stats = pytest.importorskip("scipy.stats")
        counts = Counter(self.drawn(expression))
        half = getattr(expression, "q", 1) / 2
        cdf = getattr(stats, name)(*shape).cdf
        expected = {step: self.DRAWS * (cdf(step + half) - cdf(step - half)) for step in counts}
        common = [step for step in counts if expected[step] > 5]
        off = sum((counts[step] - expected[step]) ** 2 / expected[step] for step in common)
        assert stats.chi2.sf(off, len(common) - 1) > 0.01
