"""
The fields of entities, each declared once: its kind, its text, and its value where none is given.

The constructor, its signature, the table of YAML, JSON Schema and what is dumped come from the declarations.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - for typing.get_type_hints

from drumline.contract.errors import SpecError
from drumline.spec.entity import ConstructorSignature, Entity, text_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from inspect import Parameter
    from typing import Any as Any  # noqa: PLC0414 - for entities, as below
    from typing import Generic, Self, TypeVar, dataclass_transform

    from drumline.spec.kinds.values import Kind

    T = TypeVar("T")

    class OrEmpty(Generic[T]):
        """The type of a field where None stands for an empty value."""

        def __get__(self, owner: object, kind: type[object] | None = None) -> T: ...
        def __set__(self, owner: object, value: T | None) -> None: ...

    class MadeOf(Generic[T]):
        """The type of a field that makes its value of what it is given, such as a mapping."""

        def __get__(self, owner: object, kind: type[object] | None = None) -> T: ...
        def __set__(self, owner: object, value: Any) -> None: ...
else:
    Any = object

    class _TypeItself:
        """What ``typing.get_type_hints`` of an entity says in place of the two: ``typing`` would cost its import."""

        def __class_getitem__(cls, held: type) -> type:
            return held

    OrEmpty = MadeOf = _TypeItself

    def dataclass_transform(**_: object) -> Callable[[type], type]:
        """Return a decorator that does nothing: the real one would cost the import of ``typing``."""
        return lambda entity: entity


_REQUIRED = object()


class Field:
    """A declared field, as ``field`` describes it."""

    def __init__(  # noqa: PLR0913 - each is a fact of a field
        self,
        kind: Kind | None,
        text: str = "",
        default: Any = _REQUIRED,
        factory: Callable[..., Any] | None = None,
        alias: str = "",
        *,
        init: bool = True,
        kw_only: bool = True,
        dumped: bool = True,
        last: bool = False,
    ) -> None:
        self.kind = kind
        self.text = text
        self.default = default
        self.factory = factory
        self.alias = alias
        self.init = init
        self.kw_only = kw_only
        self.dumped = dumped and kind is not None
        self.is_last = last
        self.is_required = init and default is _REQUIRED and factory is None

    def adopt(self, name: str, value: Any) -> Any:
        """Return a value of Python as the field keeps it. Raises SpecError for what it cannot make its value of."""
        if value is None:
            return None if self.factory is None else self.factory()
        if self.factory is dict and not hasattr(value, "keys"):
            raise SpecError(f"{name} cannot be of type {type(value).__name__!r}", "give a mapping of names")
        if self.factory is list and (isinstance(value, str) or not hasattr(value, "__iter__")):
            raise SpecError(f"{name} cannot be of type {type(value).__name__!r}", "give a list")
        made = value if self.kind is None else self.kind.adopt(value)
        return self.factory(made) if self.factory in (dict, list) else made


def field(  # noqa: PLR0913 - each is a fact of a field
    kind: Kind | None,
    text: str = "",
    *,
    default: Any = _REQUIRED,
    factory: Callable[..., Any] | None = None,
    alias: str = "",
    init: bool = True,
    kw_only: bool = True,
    dumped: bool = True,
    last: bool = False,
) -> Any:
    """
    Declare a field of an entity.

    kind: what files and Python may put there; None for a field that files do not have. text: one sentence for editors.
    factory: makes the value where none is given, and copies one that is. alias: its name in the constructor.
    init: whether constructors take it. dumped: whether what is written has it. last: there, after the others.
    """
    return Field(kind, text, default, factory, alias, init=init, kw_only=kw_only, dumped=dumped, last=last)


class _DeclaredSignature(ConstructorSignature):
    def list_parameters(self, base: type[Any], entity: type[Any]) -> list[Parameter]:
        return list(_list_parameters(entity)) if base is Declared else super().list_parameters(base, entity)


def _list_parameters(entity: type[Declared]) -> Iterator[Parameter]:
    from inspect import Parameter, get_annotations

    declaring = [base for base in reversed(entity.__mro__) if vars(base).get("_own_declarations")]
    words = {name: text for base in declaring for name, text in get_annotations(base).items()}
    for name, declared in entity._declarations.items():
        if declared.init and not name.startswith("_"):
            yield Parameter(
                declared.alias or name,
                Parameter.KEYWORD_ONLY if declared.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
                default=Parameter.empty
                if declared.is_required
                else None
                if declared.factory
                else declared.default,
                annotation=_show_annotation(words[name]),
            )
    if entity._settle_arguments is not Declared._settle_arguments:
        yield Parameter("kwargs", Parameter.VAR_KEYWORD, annotation="Any")


def _show_annotation(words: str) -> str:
    """Return what a constructor takes for a field of this annotation."""
    name, mark, inner = words.partition("[")
    return inner[:-1] + " | None" if mark and name == "OrEmpty" else "Any" if name == "MadeOf" else words


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
class Declared(Entity):
    """An entity whose constructor comes from its declared fields."""

    __signature__ = _DeclaredSignature()

    _declarations: Mapping[str, Field] = {}
    """The fields, those of the bases first."""
    _own_declarations: Mapping[str, Field] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._own_declarations = own = {
            name: value for name, value in vars(cls).items() if isinstance(value, Field)
        }
        for name, declared in own.items():
            if isinstance(getattr(super(cls, cls), name, None), property):
                delattr(cls, name)
            else:
                setattr(cls, name, None if declared.is_required or declared.factory else declared.default)
        bases = [base._own_declarations for base in reversed(cls.__mro__) if issubclass(base, Declared)]
        if own or len(cls.__bases__) > 1:
            cls._declarations = {name: declared for base in bases for name, declared in base.items()}
            dumped = [name for name, declared in cls._declarations.items() if declared.dumped]
            cls._fields = tuple(sorted(dumped, key=lambda name: cls._declarations[name].is_last))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        positional = [name for name, declared in self._declarations.items() if not declared.kw_only]
        if len(args) > len(positional):
            given = f"takes {len(positional)} positional arguments but {len(args)} were given"
            raise TypeError(f"{type(self).__name__}() {given}")
        for name, value in zip(positional, args, strict=False):
            if name in kwargs:
                raise TypeError(f"{type(self).__name__}() got multiple values for argument {name!r}")
            kwargs[name] = value
        for name, declared in self._declarations.items():
            given = (
                kwargs.pop(declared.alias or name, declared.default) if declared.init else declared.default
            )
            if declared.is_required and given is _REQUIRED:
                raise TypeError(f"{type(self).__name__}() missing required argument: {name!r}")
            if declared.init or declared.factory:
                setattr(self, name, None if given is _REQUIRED else given)
        self._settle_arguments(kwargs)

    @classmethod
    def _from_checked(cls, values: Mapping[str, Any]) -> Self:
        """Make it of the values that a table has checked; null stands for a key that is not there."""
        made = cls.__new__(cls)
        for name, declared in cls._declarations.items():
            value = values.get(name) if declared.init else None
            if value is None and declared.factory:
                value = declared.factory()
            if declared.init or declared.factory:
                object.__setattr__(made, name, declared.default if value is None else value)
        return made

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        """End the constructor; ``others``: arguments that no field takes."""
        if others:
            raise TypeError(
                f"{type(self).__name__}() got an unexpected keyword argument {next(iter(others))!r}"
            )

    def __setattr__(self, name: str, value: Any) -> None:
        declared = self._declarations.get(name)
        object.__setattr__(self, name, declared.adopt(name, value) if declared else value)


class Located(Declared):
    """An entity with paths that resolve against the folder of its file, ``base_path``."""

    _base_path: str = field(None, default="", alias="base_path")

    def _settle_arguments(self, others: dict[str, Any]) -> None:
        given = others.pop("_base_path", None)
        self._base_path = text_path(self._base_path or given or "")
        super()._settle_arguments(others)

    @property
    def base_path(self) -> str:
        """Return the folder that relative paths resolve against."""
        import os

        return self._base_path or os.getcwd()
