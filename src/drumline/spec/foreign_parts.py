"""
The parts of a job, and what is registered: what has the same name there and here has the same fields too.

Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.entities
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Any

HINT = "import pipeline, command and load_component from drumline"
_PACKAGES = ("azure.ai.ml", "mldesigner")
_NAMES = {
    "drumline.spec.registered.assets": ("Data", "Model"),
    "drumline.spec.registered.compute": ("AmlCompute",),
    "drumline.spec.registered.datastores": (
        "AccountKeyConfiguration", "AzureBlobDatastore", "AzureDataLakeGen1Datastore", "AzureDataLakeGen2Datastore",
        "AzureFileDatastore", "CertificateConfiguration", "NoneCredentialConfiguration", "OneLakeDatastore",
        "SasTokenConfiguration", "ServicePrincipalConfiguration",
    ),
    "drumline.spec.parts.environment": ("BuildContext", "Environment"),
    "drumline.spec.parts.io": ("Input", "Output"),
    "drumline.spec.jobs.pipeline": ("PipelineJobSettings",),
    "drumline.spec.parts.resources": (
        "AmlTokenConfiguration", "CommandJobLimits", "JobResourceConfiguration", "ManagedIdentityConfiguration",
        "MpiDistribution", "PyTorchDistribution", "QueueSettings", "RayDistribution", "ResourceConfiguration",
        "TensorFlowDistribution", "UserIdentityConfiguration",
    ),
    "drumline.spec.parts.search": (
        "BanditPolicy", "BayesianSamplingAlgorithm", "Choice", "GridSamplingAlgorithm", "LogNormal", "LogUniform",
        "MedianStoppingPolicy", "Normal", "Objective", "QLogNormal", "QLogUniform", "QNormal", "QUniform",
        "Randint", "RandomSamplingAlgorithm", "SweepJobLimits", "TruncationSelectionPolicy", "Uniform",
    ),
    "drumline.spec.parts.services": (
        "JobService", "JupyterLabJobService", "SshJobService", "TensorBoardJobService", "VsCodeJobService",
    ),
}  # fmt: skip
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
_MAPPINGS = ("AmlComputeSshSettings", "IdentityConfiguration", "NetworkSettings", "OneLakeArtifact")
"""Here they are mappings."""

_WITH_PATHS = ("Data", "Environment", "Model")


def name_in(value: Any, known: Container[str]) -> str:
    """Return the first of its classes, roots last, that is theirs and has a known name; else empty."""
    for kind in type(value).__mro__:
        if kind.__name__ in known and _is_theirs(kind):
            return kind.__name__
    return ""


def is_foreign(value: Any) -> bool:
    """Return whether a value's class is one of theirs, or made from one."""
    return any(_is_theirs(kind) for kind in type(value).__mro__)


def _is_theirs(kind: type[Any]) -> bool:
    return any(kind.__module__ == name or kind.__module__.startswith(name + ".") for name in _PACKAGES)


def ours(value: Any) -> Any:
    """Return our counterpart of an object of theirs; any other value as it is."""
    name = name_in(value, _HOMES)
    if name:
        from importlib import import_module

        return _make(getattr(import_module(_HOMES[name]), name), value)
    return fields_of(value) if name_in(value, _MAPPINGS) else value


def is_within_theirs() -> bool:
    """Return whether a function under azure-ai-ml's ``@pipeline`` runs, which would leave out a node of ours."""
    import sys

    builders = sys.modules.get("azure.ai.ml.dsl._pipeline_component_builder")
    stack = getattr(builders, "_definition_builder_stack", None)
    return stack is not None and bool(stack.size())


def read_attribute(value: Any, name: str, default: Any = None) -> Any:
    """
    Return an attribute, or the default.

    Nodes of theirs make up an empty mapping for every name that is asked for, which this does not bring about.
    """
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return default


def fields_of(value: Any) -> dict[str, Any]:
    """Return the public attributes that are set."""
    return {name: _deep(item) for name, item in vars(value).items() if name[0] != "_" and item is not None}


def base_path_of(value: Any) -> str | None:
    """Return the absolute folder of its file, or that in which the script ran when it was made."""
    import os

    found = read_attribute(value, "_base_path")
    return os.path.abspath(os.fspath(found)) if found else None


def _deep(value: Any) -> Any:
    return [ours(item) for item in value] if isinstance(value, list) else ours(value)


def _make(make: type[Any], value: Any) -> Any:
    from inspect import Parameter, signature

    parameters = signature(make).parameters.values()
    named = [parameter.name for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD]
    # A class whose type is fixed does not take it.
    named += [name for name in make._fields if name not in named and name != "type"]
    given = {name: _deep(read_attribute(value, name)) for name in named}
    if make.__name__ in _WITH_PATHS:
        given["base_path"] = base_path_of(value)
    if make.__name__ == "PipelineJobSettings":
        given |= fields_of(value)
    if make.__name__ == "Input":
        given["path"] = _written_out(given["path"])
    if read_attribute(value, "_is_anonymous"):
        # What has no name there has one that says so, and a hash for its version.
        given["name"] = given["version"] = None
    return make(**{name: item for name, item in given.items() if item is not None and item != {}})


def _written_out(path: Any) -> Any:
    """
    Return a path; one with ``:`` or ``@`` as a reference, since theirs takes it for an asset and drops its scheme.
    """
    import os

    from drumline.spec.paths import is_remote

    text = str(path)
    is_name = (
        (":" in text or "@" in text) and not text.startswith(("${{", "file:")) and not os.path.isabs(text)
    )
    return reference(text) if is_name and not is_remote(text) else path


def reference(text: str) -> str:
    """
    Return a reference to an asset with its scheme.

    >>> reference("train:1"), reference("azureml:train@latest")
    ('azureml:train:1', 'azureml:train@latest')
    """
    return text if text.startswith("azureml:") else f"azureml:{text}"
