"""
Definitions that cost a launch little: ``NamedTuple`` as in ``typing``, its records as JSON, and patterns that are
compiled when used.

The one of ``typing`` compiles a constructor for each class and an expression for each annotation, which for all classes
that a launch needs adds up to a tenth of it. Here the constructor is compiled when there are more than a few of a
class, and annotations stay text. Type checkers see that one.
"""

from __future__ import annotations

import sys
from functools import partial

__all__ = ["ABSENT", "Absent", "NamedTuple", "compile_late", "describe_record", "list_types", "read_record"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from re import Pattern
    from typing import Any, AnyStr, Literal, NamedTuple
else:
    try:
        from _collections import _tuplegetter
    except ImportError:  # another Python than CPython
        from operator import itemgetter

        def _tuplegetter(index: int, _doc: None) -> property:
            return property(itemgetter(index))

    _FEW = 16
    _made = {}
    """How many of each class, as long as those are few."""

    class _Meta(type):
        def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> type:
            if not bases:
                return type.__new__(cls, name, bases, namespace)
            if "__annotate_func__" in namespace:
                # Python 3.14 would look them up when asked; here they are text, as the import has it.
                raise TypeError(f"{name}: its module needs `from __future__ import annotations`")
            fields = tuple(namespace.get("__annotations__", ()))
            namespace["_fields"] = namespace["__match_args__"] = fields
            namespace["_field_defaults"] = {
                field: namespace.pop(field) for field in fields if field in namespace
            }
            namespace["__slots__"] = ()
            for index, field in enumerate(fields):
                namespace[field] = _tuplegetter(index, None)
            for method, function in _METHODS.items():
                namespace.setdefault(method, function)
            return type.__new__(type, name, (tuple,), namespace)

    def _new(cls: type, *args: Any, **kwargs: Any) -> Any:
        """Make the first few of a class; those after them, and mistakes, are for a constructor that is compiled."""
        owner = next(one for one in cls.__mro__ if "_fields" in vars(one))
        _made[owner] = _made.get(owner, 0) + 1
        given = dict(zip(owner._fields, args))
        if _made[owner] <= _FEW and len(args) <= len(owner._fields) and not given.keys() & kwargs.keys():
            given = {**owner._field_defaults, **given, **kwargs}
            if len(given) == len(owner._fields) and all(field in given for field in owner._fields):
                return tuple.__new__(cls, [given[field] for field in owner._fields])
        return _compile_new(owner)(cls, *args, **kwargs)

    def _compile_new(owner: type) -> Any:
        names = ", ".join(owner._fields)
        scope = {"__builtins__": {}, "__name__": f"record_{owner.__name__}", "make": tuple.__new__}
        exec(f"def __new__(_cls, {names}): return make(_cls, ({names}{',' if names else ''}))", scope)  # noqa: S102
        made = scope["__new__"]
        made.__defaults__ = tuple(owner._field_defaults.values())
        made.__qualname__ = f"{owner.__name__}.__new__"
        owner.__new__ = staticmethod(made)
        return made

    def _make(cls: type, iterable: Iterable[Any]) -> Any:
        made = tuple.__new__(cls, iterable)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self: Any, **changes: Any) -> Any:
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise TypeError(f"Got unexpected field names: {list(changes)!r}")
        return made

    def _asdict(self: Any) -> dict[str, Any]:
        return dict(zip(self._fields, self))

    def _repr(self: Any) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self))
        return f"{type(self).__name__}({fields})"

    def _getnewargs(self: Any) -> tuple[Any, ...]:
        return tuple(self)

    _METHODS = {
        "__new__": _new,
        "_make": classmethod(_make),
        "_replace": _replace,
        "__replace__": _replace,
        "_asdict": _asdict,
        "__repr__": _repr,
        "__getnewargs__": _getnewargs,
    }

    class NamedTuple(metaclass=_Meta):
        pass


class _LatePattern:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Return a method or attribute of the compiled pattern, which replaces this one's for the next time."""
        if name.startswith("_"):
            raise AttributeError(name)
        import re

        value = getattr(re.compile(self._pattern, self._flags), name)
        setattr(self, name, value)
        return value


def compile_late(pattern: AnyStr, flags: int = 0) -> Pattern[AnyStr]:
    """Return what ``re.compile`` returns, for use by its methods; a mistake in the pattern shows at the first use."""
    late: Any = _LatePattern(pattern, flags)
    return late  # type: ignore[no-any-return]


# Records and JSON: what the JSON of a record must hold is said by the annotations of its fields.


_LARGEST = 1 << 62
"""Of numbers; more is no count, and neither is NaN."""

_TYPES: dict[str, tuple[type, ...]] = {
    "float": (float, int),
    "int": (int,),
    "str": (str,),
    "bool": (bool,),
    "EndKind": (str,),
    "list": (list,),
    "Sequence": (list,),
    "tuple": (list,),
}
"""What JSON may hold for an annotation that begins so; for others an object."""

_LAYOUTS: dict[type, tuple[dict[str, tuple[type, ...]], dict[str, Callable[[Any], Any]]]] = {}
"""By class and field, the types that JSON may hold, and, for lists and records, what makes them of that."""


def read_record(kind: type[Any], data: dict[str, Any]) -> Any:
    """
    Return the record of a JSON object, which is changed. Raises TypeError for values of other types and for fields that
    are missing, KeyError for unknown ones. Of records inside of it, the fields that are lists or records are checked.
    """
    types = list_types(kind)
    for name, value in data.items():
        found = type(value)
        is_number = found is int or found is float
        if found not in types[name] or (is_number and not -_LARGEST < value < _LARGEST):
            raise TypeError(f"{name} is {str(value)[:50]!r}")
    return _make_record(kind, data)


def list_types(kind: type[Any]) -> dict[str, tuple[type, ...]]:
    """Return by field what JSON may hold for it."""
    return (_LAYOUTS.get(kind) or _read_layout(kind))[0]


def _make_record(kind: type[Any], value: Any) -> Any:
    """Make a record of an object, or of the array of its fields, as a record inside of another one may be."""
    types, converts = _LAYOUTS.get(kind) or _read_layout(kind)
    if type(value) is list and len(value) <= len(kind._fields):
        if not converts:
            return kind(*value)
        value = dict(zip(kind._fields, value))
    if type(value) is not dict:
        raise TypeError(f"{str(value)[:50]!r} is no {kind.__name__}")
    for name, convert in converts.items():
        if name in value:
            if type(value[name]) not in types[name]:
                raise TypeError(f"{name} is {str(value[name])[:50]!r}")
            value[name] = None if value[name] is None else convert(value[name])
    return kind(**value)


def _read_layout(kind: type[Any]) -> Any:
    scope = vars(sys.modules[kind.__module__])
    types: dict[str, tuple[type, ...]] = {}
    converts: dict[str, Callable[[Any], Any]] = {}
    for name in kind._fields:
        text = kind.__annotations__[name]
        plain = text[len("Optional[") : -1] if text.startswith("Optional[") else text.removesuffix(" | None")
        head, _, inside = plain.partition("[")
        types[name] = _TYPES.get(head, (dict,))
        if list in types[name]:
            item = inside[:-1].removesuffix(", ...")
            converts[name] = partial(_make_items, tuple if head == "tuple" else list, item, scope.get(item))
        elif hasattr(scope.get(head), "_fields"):
            types[name], converts[name] = (dict, list), partial(_make_record, scope[head])
        if plain != text:
            types[name] += (type(None),)
    _LAYOUTS[kind] = types, converts
    return types, converts


def _make_items(kind: type, name: str, item: Any, values: list[Any]) -> Any:
    if hasattr(item, "_fields"):
        return kind([_make_record(item, value) for value in values])
    if name == "str" and not all(type(value) is str for value in values):
        raise TypeError("a list with something that is no text")
    return kind(values)


class Absent:
    """A value that is false: of a field without a key in JSON."""

    def __bool__(self) -> Literal[False]:
        return False


ABSENT = Absent()

_PLAIN = frozenset((str, int, float, bool, type(None)))


def describe_record(value: Any) -> Any:
    """Return what JSON holds for a value: for records objects, at any depth."""
    if isinstance(value, dict):
        items: Iterable[Any] = value.items()
    elif hasattr(value, "_fields"):
        items = zip(value._fields, value)
    elif isinstance(value, (list, tuple)):
        return [item if type(item) in _PLAIN else describe_record(item) for item in value]
    else:
        return value
    return {
        name: item if type(item) in _PLAIN else describe_record(item)
        for name, item in items
        if type(item) is not Absent
    }
