"""What every part of a job has in common: named fields, equality by them, and a short repr."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from typing import IO, Any


class Entity:
    """
    A plain object with the fields named in ``_fields``; mutable, checked as a whole by
    ``validate``.
    """

    _fields: tuple[str, ...] = ()
    _whole: tuple[str, ...] = ()
    """Fields where ``"4"`` and ``4.0`` are 4, as in YAML."""
    _folded: tuple[str, ...] = ()
    """Fields whose case does not matter; kept in lower case."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._whole:
            value = whole(value)
        elif name in self._folded and isinstance(value, str):
            value = value.lower()
        object.__setattr__(self, name, value)

    def _values(self) -> dict[str, Any]:
        """The fields that are set, under the keys of YAML."""
        values = {name: getattr(self, name, None) for name in self._fields}
        return {name: value for name, value in values.items() if value is not None}

    def _plain(self) -> Any:
        """The keys of YAML, where the fields alone are not it."""
        return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)) or type(other) is not type(self):
            return NotImplemented
        return bool(self._values() == other._values())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({fields})"


class Written(Entity):
    """An entity that is a file of its own: ``str()`` is that file, and ``dump`` writes it."""

    def _file(self) -> dict[str, Any]:
        """The keys of YAML with local paths in full; JSON can hold it."""
        raise NotImplementedError

    def dump(self, dest: str | os.PathLike[str] | IO[str], **kwargs: Any) -> None:
        """Write it as YAML that loads back; over what is there, unless ``overwrite=False``. Raises OSError."""
        if hasattr(dest, "write"):
            dest.write(str(self))
            return
        with open(dest, "w" if kwargs.get("overwrite", True) else "x", encoding="utf-8") as file:
            file.write(str(self))

    def __str__(self) -> str:
        import yaml

        return str(yaml.safe_dump(self._file(), sort_keys=False, allow_unicode=True, width=10_000))


class Attributes(dict[str, "Any"]):
    """A mapping whose items are attributes too: ``job.inputs["lr"]`` and ``job.inputs.lr``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(map(repr, self)) or "none"
            raise AttributeError(f"no {name!r} here; known: {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __deepcopy__(self, memo: dict[int, Any]) -> Attributes:
        from copy import deepcopy

        copied = type(self)()
        for name, value in self.items():
            dict.__setitem__(copied, name, deepcopy(value, memo))
        return copied


def text_path(value: Any) -> Any:
    """A path-like object as text; anything else as it is."""
    return value.__fspath__() if hasattr(value, "__fspath__") else value


def whole(value: Any) -> Any:
    """The whole number that text or a float stands for; anything else as it is."""
    if isinstance(value, (str, float)):
        try:
            return int(value)
        except (ValueError, OverflowError):
            return value
    return value
