"""Placeholders are filled in once, and nothing else in a command line is touched."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumline.contract.errors import PlanError
from drumline.spec.placeholders import expand, legacy_forms

VALUES = {"inputs.x": "1", "inputs.data": "/d", "outputs.o": "/o"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a ${{inputs.x}}", "a 1"),
        ("${{ inputs.x }}${{outputs.o}}", "1/o"),
        ("{inputs.x} {outputs.o}", "1 /o"),
        ("${inputs.x}", "1"),
        ("$${{inputs.x}}", "1"),
        ("{{inputs.x}}", "{{inputs.x}}"),
        ("$X ${X} ${X:-{y}} $(id) `id` {x}", "$X ${X} ${X:-{y}} $(id) `id` {x}"),
        ("a $[[--x ${{inputs.x}}]] b", "a --x 1 b"),
        ("a $[[--y ${{inputs.y}}]] b", "a  b"),
        ("$[[--x ${{inputs.x}} --y ${{inputs.y}}]]", ""),
        ("$[[a\nb ${{inputs.x}}]]", "a\nb 1"),
        ("a\nb ${{inputs.x}}\n", "a\nb 1\n"),
        ("", ""),
    ],
)
def test_a_command_is_filled_in(text, expected):
    assert expand(text, VALUES) == expected


@pytest.mark.parametrize("value", ["${{inputs.y}}", "{inputs.y}", "$[[x]]", "\\1", "$(id)"])
def test_what_a_value_holds_is_not_looked_at_again(value):
    assert expand("${{inputs.x}}", {"inputs.x": value, "inputs.y": "no"}) == value


@pytest.mark.parametrize("text", ["${{inputs.zz}}", "{inputs.zz}", "${{search_space.lr}}", "${{x}}", "${{}}"])
def test_an_unknown_name_is_refused_with_the_known_ones(text):
    with pytest.raises(PlanError) as caught:
        expand(text, VALUES)
    assert caught.value.hint


@pytest.mark.parametrize("text", ["${{inputs.x", "${{inputs.x}", "${{ a b }}"])
def test_a_placeholder_that_is_never_closed_is_refused(text):
    with pytest.raises(PlanError, match="is never closed"):
        expand(text, VALUES)


@pytest.mark.parametrize(
    ("text", "expected"), [("{inputs.x}", True), ("${inputs.x}", True), ("${{inputs.x}}", False)]
)
def test_single_braces_are_the_old_form(text, expected):
    assert bool(legacy_forms(text)) is expected


@given(st.text(alphabet="${}[] inputs.xo\n\"'\\"))
def test_any_text_is_filled_in_or_refused(text):
    with contextlib.suppress(PlanError):
        expand(text, VALUES)
