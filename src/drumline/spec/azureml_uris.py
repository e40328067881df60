"""
The things that a text beginning with ``azureml:`` or ``runs:`` refers to.

Source: https://learn.microsoft.com/azure/machine-learning/reference-yaml-core-syntax (references), and the URIs that
azure-ai-ml prints.
"""

from __future__ import annotations

import re

from drumline.contract.errors import SpecError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Reference: TypeAlias = "AssetReference | InDatastore | JobOutputReference | RunFile"


class AssetReference:
    """
    A reference to an asset. ``version`` or ``label`` is set, or neither. ``registry``: of which it is; empty for a
    workspace's own.
    """

    def __init__(self, name: str, version: str = "", label: str = "", registry: str = "") -> None:
        self.name = name
        self.version = version
        self.label = label
        self.registry = registry

    def __str__(self) -> str:
        return (
            self.name
            + (f":{self.version}" if self.version else "")
            + (f"@{self.label}" if self.label else "")
        )


class InDatastore:
    """A reference to a path in a datastore. ``path`` is inside the datastore, as written."""

    def __init__(self, datastore: str, path: str) -> None:
        self.datastore = datastore
        self.path = path


class JobOutputReference:
    """A reference to an output of a job. ``path`` is inside the output, as written."""

    def __init__(self, job: str, output: str, path: str = "") -> None:
        self.job = job
        self.output = output
        self.path = path


class RunFile:
    """A reference to a file of a run. ``path`` is inside what the job's MLflow run has as artifacts."""

    def __init__(self, job: str, path: str) -> None:
        self.job = job
        self.path = path


_PREFIX = "azureml:"
_WORKSPACE_PREFIX = r"(?:(?:subscriptions|locations)/.*?/)?"
_ARM = re.compile(r"/subscriptions/.+/providers/Microsoft\.MachineLearningServices/", re.IGNORECASE)
_DATASTORE = re.compile(_WORKSPACE_PREFIX + r"datastores/([^/]+)(?:/paths(?:/(.*))?)?/?")
_JOB_OUTPUT = re.compile(_WORKSPACE_PREFIX + r"jobs/([^/]+)/outputs/([^/]+)(?:/paths(?:/(.*))?)?/?")
_REGISTRY = re.compile(r"registries/([^/]+)/[a-z]+/([^/]+)/(versions|labels)/([^/]+)/?")
_ASSET_ID = re.compile(
    r"(?:subscriptions|locations)/.*/(?:data|models|environments|components|codes)/([^/]+)"
    r"/(versions|labels)/([^/]+)/?",
    re.IGNORECASE,
)
_RUN_FILE = re.compile(r"runs:/+([^/]+)/(.*)")
_ASSET = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]*)(?::([^@/]+)|@([A-Za-z0-9][A-Za-z0-9_.-]*))?")
_FORMS = "azureml:NAME:VERSION, azureml:NAME@LABEL, azureml://datastores/NAME/paths/PATH or "
_FORMS += "azureml://jobs/NAME/outputs/NAME"


def is_reference(text: str) -> bool:
    """Return whether a text begins like a reference; it may be none all the same."""
    return text[:8].lower() == _PREFIX or text.startswith("runs:/") or bool(_ARM.match(text))


def parse(text: str) -> Reference:
    """
    Parse a reference. Raises SpecError for what begins like one and is none.

    >>> str(parse("azureml:digits:1")), str(parse("azureml:azureml:digits@latest"))
    ('digits:1', 'digits@latest')
    >>> parse("azureml:azureml://datastores/blob/paths/a/b").path
    'a/b'
    """
    run_file = _RUN_FILE.fullmatch(text)
    if run_file:
        return RunFile(*run_file.groups())
    rest = text.strip()
    while rest[:8].lower() == _PREFIX:  # It stands twice where scripts put it before what had it.
        rest = rest[8:]
    found = _uri(rest.lstrip("/")) if rest.startswith("/") else _asset(rest)
    if found is None:
        raise SpecError(f"unknown form of reference: {text!r}", _FORMS)
    return found


def _uri(rest: str) -> Reference | None:
    for pattern, kind in ((_DATASTORE, InDatastore), (_JOB_OUTPUT, JobOutputReference)):
        found = pattern.fullmatch(rest)
        if found:
            return kind(*(part or "" for part in found.groups()))
    found = _REGISTRY.fullmatch(rest)
    if found:
        registry, name, which, value = found.groups()
        return _make_reference(name, which, value, registry)
    return _asset_id(rest)


def _asset_id(rest: str) -> AssetReference | None:
    found = _ASSET_ID.fullmatch(rest)
    return _make_reference(*found.groups()) if found else None


def _asset(rest: str) -> AssetReference | None:
    found = _ASSET.fullmatch(rest)
    return AssetReference(*(part or "" for part in found.groups())) if found else None


def _make_reference(name: str, which: str, value: str, registry: str = "") -> AssetReference | None:
    named = _asset(f"{name}@{value}" if which.lower() == "labels" else f"{name}:{value}")
    return AssetReference(named.name, named.version, named.label, registry) if named else None
