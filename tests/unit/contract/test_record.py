"""Our NamedTuple is that of typing in all that the project uses of it."""

from __future__ import annotations

import copy
import pickle
import sys
import typing

import pytest

from drumline.contract.record import NamedTuple


class Ours(NamedTuple):
    """A class as the project has them."""

    name: str
    size: int | None = None
    parts: tuple[str, ...] = ()
    """What it is made of."""

    @property
    def is_large(self) -> bool:
        return (self.size or 0) > 9

    def grown(self) -> Ours:
        return self._replace(size=(self.size or 0) + 1)


class Theirs(typing.NamedTuple):
    """The same."""

    name: str
    size: int | None = None
    parts: tuple[str, ...] = ()

    @property
    def is_large(self) -> bool:
        return (self.size or 0) > 9

    def grown(self) -> Theirs:
        return self._replace(size=(self.size or 0) + 1)


class Nothing(NamedTuple):
    """Without a field."""


class Below(Ours):
    """Of a class of ours."""


@pytest.mark.skipif(sys.version_info < (3, 14), reason="older Pythons have the annotations at the definition")
def test_annotations_that_are_no_text_are_refused():
    text = "class Ours(NamedTuple):\n    name: str"
    with pytest.raises(TypeError, match="Ours: its module needs `from __future__ import annotations`"):
        exec(compile(text, "ours.py", "exec", dont_inherit=True), {"NamedTuple": NamedTuple})


MADE = [
    lambda kind: kind("a"),
    lambda kind: kind("a", 1, ("b",)),
    lambda kind: kind("a", parts=("b",)),
    lambda kind: kind(size=3, name="a"),
    lambda kind: kind._make(["a", 2, ()]),
    lambda kind: kind("a")._replace(size=10, parts=("c",)),
    lambda kind: kind("a").grown().grown(),
]
MISTAKES = [
    lambda kind: kind(),
    lambda kind: kind("a", 1, (), "more"),
    lambda kind: kind("a", name="b"),
    lambda kind: kind("a", other=1),
    lambda kind: kind._make(["a"]),
    lambda kind: kind("a")._replace(other=1),
]


@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("before", [0, 100])
def test_it_is_made_and_shown_as_that_of_typing(make, before):
    """The first few of a class are made otherwise than those that follow."""
    for _ in range(before):
        make(Ours)
    ours, theirs = make(Ours), make(Theirs)
    assert tuple(ours) == tuple(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert (ours._asdict(), ours.is_large) == (theirs._asdict(), theirs.is_large)
    assert (ours.name, ours.size, ours.parts) == (theirs.name, theirs.size, theirs.parts)
    assert type(ours) is Ours
    assert ours == pickle.loads(pickle.dumps(ours)) == copy.deepcopy(ours)


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("before", [0, 100])
def test_mistakes_are_those_of_typing(mistake, before):
    class Fresh(NamedTuple):
        name: str
        size: int = 0
        parts: tuple[str, ...] = ()

    for _ in range(before):
        Fresh("a")
    for kind in (Theirs, Fresh):
        # Which of the two differs between versions of Python.
        with pytest.raises((TypeError, ValueError)):
            mistake(kind)


def test_a_class_says_the_same_of_itself():
    for name in ("_fields", "_field_defaults", "__match_args__", "__slots__"):
        assert getattr(Ours, name) == getattr(Theirs, name)
    assert typing.get_type_hints(Ours) == typing.get_type_hints(Theirs)
    assert (Ours.__mro__[1:], Ours.__doc__) == ((tuple, object), "A class as the project has them.")
    assert (Nothing(), Nothing._fields, repr(Nothing())) == ((), (), "Nothing()")
    assert isinstance(Below("a"), Below)
    with pytest.raises(AttributeError):
        Ours("a").size = 1
    match Ours("a", 2):
        case Ours(name, size):
            assert (name, size) == ("a", 2)
