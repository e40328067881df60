"""Names, durations and spellings of Azure's REST API, read as job files have them and written as ARM has them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from drumline.contract.errors import SpecError
from drumline.spec.azureml_uris import AssetReference, is_reference, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX = "azureml:"
_NAMED = re.compile(r"/subscriptions/.+/(computes|datastores)/([^/]+)/?", re.IGNORECASE)
_CODE = re.compile(r"/subscriptions/.+/codes/([^/]+)/versions/([^/]+)/?", re.IGNORECASE)
_ASSET_IN_ID = re.compile(
    r"(?P<before>.*/(?:data|models|environments|components)/)(?P<name>[^/]+)(?P<after>/.+)", re.IGNORECASE
)
_DURATION = re.compile(
    r"P(?:(\d+(?:\.\d+)?)W)?(?:(\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?"
)
_SECONDS = (604_800, 86_400, 3_600, 60, 1)
_WORD = re.compile(r"(?<=[a-z0-9])([A-Z])")


def to_snake(name: str) -> str:
    """
    Return a key of a body as YAML has it.

    >>> to_snake("processCountPerInstance"), to_snake("instance_count")
    ('process_count_per_instance', 'instance_count')
    """
    return _WORD.sub(r"_\1", name).lower()


def to_camel(name: str) -> str:
    """
    Return a key of YAML as bodies have it.

    >>> to_camel("instance_count")
    'instanceCount'
    """
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


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


# reading


def remove_prefixes(text: str) -> str:
    """
    Return an id without the ``azureml:`` that the client puts before it, once or twice; an ``azureml://`` stays.

    >>> remove_prefixes("azureml:azureml:digits:1"), remove_prefixes("azureml:azureml://datastores/d/paths/a")
    ('digits:1', 'azureml://datastores/d/paths/a')
    """
    text = text.strip()
    while text[: len(_PREFIX)].lower() == _PREFIX and text[len(_PREFIX) :][:2] != "//":
        text = text[len(_PREFIX) :]
    return text


def read_reference(text: str) -> str:
    """
    Return the id of an asset as a job file refers to it.

    Raises SpecError for what begins like a reference and is none.

    >>> workspace = "/subscriptions/s/resourceGroups/r/providers/Microsoft.MachineLearningServices/workspaces/w"
    >>> read_reference(workspace + "/environments/torch/versions/2"), read_reference("torch@latest")
    ('azureml:torch:2', 'azureml:torch@latest')
    """
    bare = remove_prefixes(text)
    in_id = _ASSET_IN_ID.fullmatch(bare)
    if in_id and bare.startswith("/"):
        bare = in_id["before"] + remove_prefixes(unquote(in_id["name"])) + in_id["after"]
    elif "://" in bare and not is_reference(bare):
        return bare
    reference = parse(bare if is_reference(bare) else _PREFIX + bare)
    if isinstance(reference, AssetReference) and not reference.registry:
        return f"{_PREFIX}{reference}"
    return bare


def read_path(text: str) -> str:
    """Return the path of data: as ``read_reference`` an id, as it is a path or an address."""
    bare = remove_prefixes(text)
    return read_reference(text) if bare != text or is_reference(bare) else text


def read_named(text: str) -> str:
    """
    Return a compute or a datastore as a job file names it.

    >>> read_named("/subscriptions/s/resourceGroups/r/x/workspaces/w/computes/gpu"), read_named("local")
    ('azureml:gpu', 'local')
    """
    bare = remove_prefixes(text)
    found = _NAMED.fullmatch(bare)
    name = unquote(found[2]) if found else bare
    return name if name.lower() in ("local", "serverless") or "${{" in name else _PREFIX + name


def read_code_id(text: str) -> tuple[str, str] | None:
    """Return the name and version of stored code; None for what is no id, such as the address of a repository."""
    found = _CODE.fullmatch(remove_prefixes(text))
    return (unquote(found[1]), unquote(found[2])) if found else None


def read_seconds(value: Any, place: str) -> Any:
    """
    Return a duration of ISO 8601 as seconds; a number or a binding stays. Raises SpecError.

    >>> read_seconds("PT1H1M1S", "limits.timeout"), read_seconds("P1D", "limits.timeout")
    (3661, 86400)
    """
    if not isinstance(value, str) or "${{" in value or value.isdecimal():
        return value
    found = _DURATION.fullmatch(value)
    if found is None or not any(found.groups()):
        raise SpecError(
            f"{place}: {value!r} is not a duration", "such as PT1H30M; years and months have no length"
        )
    seconds = sum(float(part) * unit for part, unit in zip(found.groups(), _SECONDS, strict=True) if part)
    return int(seconds) if seconds == int(seconds) else seconds


# writing


def write_reference(text: str, workspace_id: str, collection: str) -> str:
    """
    Return a reference of a job file as an id; what belongs to no workspace stays as it is.

    collection: ``environments``, ``components``, ``data`` or ``models``.

    >>> write_reference("azureml:torch:2", "/subscriptions/s/x/workspaces/w", "environments")
    '/subscriptions/s/x/workspaces/w/environments/torch/versions/2'
    """
    if not is_reference(text):
        return text
    try:
        reference = parse(text)
    except SpecError:
        return text
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
    is_number = isinstance(seconds, (int, float)) or str(seconds).isdecimal()
    return f"PT{seconds}S" if is_number else seconds


def rename_keys(values: Mapping[str, Any], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return a part of a job with the keys of a body; ``names``: those that have another there."""
    return {
        (names or {}).get(key) or to_camel(key): value for key, value in values.items() if value is not None
    }
