"""Curves as text."""

import math

import pytest

from drumline.control.observing import plot
from drumline.tracking.metrics import Point
from drumline.tracking.series import Series


def series(*values):
    made = Series("loss", "mlflow")
    made.extend(Point(step, 0, value) for step, value in enumerate(values))
    return made


def test_a_curve_in_ascii():
    lines = plot.curve(series(4.0, 3.0, 2.0, 1.0), 12, 4, unicode=False)
    assert lines == ["4|**", " |  **", " |    ***", "1|       **", "  0       3"]


def test_a_curve_in_dots_goes_from_corner_to_corner():
    lines = plot.curve(series(0.0, 1.0), 20, 3, unicode=True)
    assert [line[0] for line in lines] == ["1", " ", "0", " "]
    assert all(set(line[2:]) <= {" ", *map(chr, range(0x2800, 0x2900))} for line in lines[:-1])
    assert lines[0].rstrip()[-1] != " "
    assert lines[2][2] != " "
    assert len(lines[0]) <= 20


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize(
    "values",
    [
        (1.0,),
        (2.0, 2.0),
        (math.nan, 1.0, math.inf),
        (-1.7e308, 1.7e308),
        (5e-324, 0.0),
        (1e300, 1.0000001e300),
    ],
)
def test_any_numbers_have_a_curve_and_a_line(values, unicode):
    lines = plot.curve(series(*values), 40, 8, unicode=unicode)
    assert len(lines) == 9
    assert all(len(line) <= 41 for line in lines)
    assert any(letter not in " ┤|" for line in lines[:-1] for letter in line[9:] or line)
    assert plot.line(series(*values), 10, unicode=unicode)


def test_what_is_never_finite_has_none():
    assert plot.curve(series(math.nan, math.inf), 40, 8, unicode=True) == []
    assert plot.line(series(math.nan), 40, unicode=True) == ""
    assert plot.line(series(), 40, unicode=True) == ""


def test_a_line_shows_the_course():
    assert plot.line(series(0.0, 1.0, 0.5, 0.0), 10, unicode=True) == "▁█▅▁"
    assert plot.line(series(0.0, 1.0), 10, unicode=False) == "_#"


def test_series_of_several_jobs_share_a_chart():
    lines = plot.overlay([series(4.0, 3.0, 2.0, 1.0), None, series(1.0, 2.0, 3.0, 4.0)], 12, 4)
    assert lines == ["4|aa     cc", " |  aaccc", " | cccaaa", "1|c      aa", "  0       3"]
    assert plot.overlay([series(1.0, 2.0)] * 2, 12, 2) == ["2|    *****", "1|****", "  0       1"]
    assert plot.overlay([None, series(math.nan)], 12, 4) == []


def test_a_series_lies_at_its_steps_in_a_shared_chart():
    later = Series("loss", "mlflow")
    later.extend([Point(2, 0, 3.0), Point(3, 0, 4.0)])
    lines = plot.overlay([series(1.0, 2.0), later], 12, 4)
    assert lines == ["4|       bb", " |     bb", " | aa", "1|a", "  0       3"]
