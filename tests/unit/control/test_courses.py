"""The course of a metric in one line of text."""

import math

import pytest

from drumline.control.facts.metrics import draw_course
from drumline.tracking.metrics import Point, Series


def series(*values):
    made = Series("loss", "mlflow")
    made.extend(Point(step, 0, value) for step, value in enumerate(values))
    return made


@pytest.mark.parametrize("in_blocks", [True, False])
@pytest.mark.parametrize(
    "values",
    [
        (1.0,),
        (2.0, 2.0),
        (math.nan, 1.0, math.inf),
        (-1.7e308, 1.7e308),
        (1.7e308,) * 40,
        (*[1.7e308] * 40, 0.0),
        (5e-324, 0.0),
        (1e300, 1.0000001e300),
    ],
)
def test_any_numbers_have_a_course(values, in_blocks):
    course = draw_course(series(*values), 10, in_blocks=in_blocks)
    assert course.strip()
    assert len(course) <= 10


def test_values_that_are_never_finite_have_none():
    assert draw_course(series(math.nan), 40, in_blocks=True) == ""
    assert draw_course(series(), 40, in_blocks=True) == ""
