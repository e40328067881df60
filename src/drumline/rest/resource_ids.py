"""Ids, words and durations of Azure's REST API, read as job files have them and written as ARM has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from drumline.contract.errors import SpecError
from drumline.spec.azureml_uris import AssetReference, is_reference, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "azureml:"
_NAMED = re.compile(r"/subscriptions/.+/(?:computes|datastores)/([^/]+)/?", re.IGNORECASE)
_CODE = re.compile(r"/subscriptions/.+/codes/([^/]+)/versions/([^/]+)/?", re.IGNORECASE)
_IN_COLLECTION = re.compile(r"(/.*/(?:data|models|environments|components)/)([^/]+)(/.+)", re.IGNORECASE)
_NUMBER = r"(?:(\d{1,9}(?:\.\d{1,9})?)%s)?"
_DURATION = re.compile(f"P{_NUMBER % 'W'}{_NUMBER % 'D'}(?:T{_NUMBER % 'H'}{_NUMBER % 'M'}{_NUMBER % 'S'})?")
_SECONDS = (604_800, 86_400, 3_600, 60, 1)
_CAPITAL = re.compile(r"(?<=[a-z0-9])([A-Z])")
_SPECIAL_WORDS = {
    "PyTorch": "pytorch",
    "TensorFlow": "tensorflow",
    "AMLToken": "aml_token",
    "SSH": "ssh",
    "VSCode": "vs_code",
    "ReadOnlyMount": "ro_mount",
    "ReadWriteMount": "rw_mount",
    "AutoML": "automl",
}
"""The words of enumerations that YAML spells neither as ``MedianStopping`` and ``median_stopping`` are spelled."""


def to_snake(name: str) -> str:
    """Return ``instanceCount`` as ``instance_count``, which stays as it is."""
    return _CAPITAL.sub(r"_\1", name).lower()


def to_camel(name: str) -> str:
    """Return ``instance_count`` as ``instanceCount``."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def read_word(word: Any) -> Any:
    """Return a word of an enumeration as YAML has it: ``UserIdentity`` as ``user_identity``; what is no text stays."""
    return _SPECIAL_WORDS.get(word) or to_snake(word) if isinstance(word, str) else word


def write_word(word: Any) -> str:
    """Return a word of YAML as enumerations have it."""
    known = next((theirs for theirs, ours in _SPECIAL_WORDS.items() if ours == str(word).lower()), "")
    return known or "".join(part[:1].upper() + part[1:] for part in str(word).split("_"))


def check_mapping(value: object, place: str) -> dict[str, Any]:
    """Return an object of a body without what is null. Raises SpecError for anything else."""
    if not isinstance(value, dict):
        raise SpecError(f"{place} must be an object; got {type(value).__name__}")
    return {str(key): item for key, item in value.items() if item is not None}


def check_text(value: object, place: str) -> str:
    """Return a text of a body. Raises SpecError for anything else."""
    if not isinstance(value, str):
        raise SpecError(f"{place} must be text; got {type(value).__name__}")
    return value


def read_properties(body: object) -> dict[str, Any]:
    """Return what a body holds. Raises SpecError."""
    return check_mapping(check_mapping(body, "the body").get("properties"), "properties")


def read_keys(value: object, place: str) -> dict[str, Any]:
    """Return an object of a body with the keys of YAML. Raises SpecError for anything else."""
    return {to_snake(key): item for key, item in check_mapping(value, place).items()}


def write_keys(values: Mapping[str, Any], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a part of a job with the keys of a body; ``names``: those that have another there."""
    return {(names or {}).get(key) or to_camel(key): item for key, item in values.items() if item is not None}


def remove_prefixes(text: str) -> str:
    """Return an id without the ``azureml:`` that the client puts before it, once or twice; ``azureml://`` stays."""
    text = text.strip()
    while text[: len(_PREFIX)].lower() == _PREFIX and not text.startswith("//", len(_PREFIX)):
        text = text[len(_PREFIX) :]
    return text


def read_reference(text: str) -> str:
    """
    Return the id of an asset as a job file refers to it: ``azureml:NAME:VERSION`` or ``azureml:NAME@LABEL``.

    An address stays as it is. Raises SpecError for what begins like a reference and is none.
    """
    bare = remove_prefixes(text)
    in_collection = _IN_COLLECTION.fullmatch(bare)
    if in_collection:
        before, name, after = in_collection.groups()
        bare = before + remove_prefixes(unquote(name)) + after
    elif "://" in bare and not is_reference(bare):
        return bare
    reference = parse(bare if is_reference(bare) else _PREFIX + bare)
    is_own = isinstance(reference, AssetReference) and not reference.registry
    return f"{_PREFIX}{reference}" if is_own else bare


def read_path(text: str) -> str:
    """Return the path of data: a reference as ``read_reference``; a path or an address as it is."""
    bare = remove_prefixes(text)
    return read_reference(text) if bare != text or is_reference(bare) else text


def read_named(text: str) -> str:
    """Return the id of a compute or a datastore as a job file names it: ``azureml:NAME``, ``local``, ``serverless``."""
    bare = remove_prefixes(text)
    found = _NAMED.fullmatch(bare)
    name = unquote(found[1]) if found else bare
    return name if name.lower() in ("local", "serverless") or "${{" in name else _PREFIX + name


def read_code_id(text: str) -> tuple[str, str] | None:
    """Return the name and version of stored code; None for what is no id, such as the address of a repository."""
    found = _CODE.fullmatch(remove_prefixes(text))
    return (unquote(found[1]), unquote(found[2])) if found else None


def read_seconds(value: Any, place: str) -> Any:
    """Return a duration of ISO 8601 as seconds; a number or a binding stays. Raises SpecError."""
    if not isinstance(value, str) or "${{" in value or value.isdecimal():
        return value
    found = _DURATION.fullmatch(value)
    parts = [float(part or 0) for part in found.groups()] if found and any(found.groups()) else []
    if not parts:
        raise SpecError(
            f"{place}: {value!r} is not a duration", "such as PT1H30M; years and months have no length"
        )
    seconds = sum((part * unit for part, unit in zip(parts, _SECONDS, strict=True)), 0.0)
    return int(seconds) if seconds.is_integer() else seconds


def write_reference(text: str, workspace_id: str, collection: str) -> str:
    """
    Return a reference of a job file as an id; what belongs to no workspace stays as it is.

    collection: ``environments``, ``components``, ``data`` or ``models``.
    """
    try:
        reference = parse(text) if is_reference(text) else None
    except SpecError:
        reference = None
    if not isinstance(reference, AssetReference) or reference.registry:
        return text
    version = (
        f"versions/{reference.version}" if reference.version else f"labels/{reference.label or 'latest'}"
    )
    return f"{workspace_id}/{collection}/{reference.name}/{version}"


def write_named(text: str, workspace_id: str, collection: str) -> str:
    """Return a compute or a datastore of a job file as an id. ``collection``: ``computes`` or ``datastores``."""
    return f"{workspace_id}/{collection}/{remove_prefixes(text)}"


def write_seconds(seconds: Any) -> Any:
    """Return seconds as a duration of ISO 8601; a binding stays."""
    return seconds if "${{" in str(seconds) else f"PT{seconds}S"
