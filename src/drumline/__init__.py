"""
The SDK: azure-ai-ml's names, for machines that people own.

``from drumline import command, Input, MLClient`` takes the place of ``from azure.ai.ml import ...``.
Names are loaded on first use, so that the command line stays quick.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.2.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline.sdk.ml_client import MLClient as MLClient
    from drumline.spec.jobs.command import Command as Command
    from drumline.spec.jobs.command import command as command
    from drumline.spec.load import load_component as load_component
    from drumline.spec.load import load_compute as load_compute
    from drumline.spec.load import load_data as load_data
    from drumline.spec.load import load_datastore as load_datastore
    from drumline.spec.load import load_environment as load_environment
    from drumline.spec.load import load_job as load_job
    from drumline.spec.load import load_model as load_model
    from drumline.spec.parts.io import Input as Input
    from drumline.spec.parts.io import Output as Output
    from drumline.spec.parts.resources import AmlTokenConfiguration as AmlTokenConfiguration
    from drumline.spec.parts.resources import ManagedIdentityConfiguration as ManagedIdentityConfiguration
    from drumline.spec.parts.resources import MpiDistribution as MpiDistribution
    from drumline.spec.parts.resources import PyTorchDistribution as PyTorchDistribution
    from drumline.spec.parts.resources import RayDistribution as RayDistribution
    from drumline.spec.parts.resources import TensorFlowDistribution as TensorFlowDistribution
    from drumline.spec.parts.resources import UserIdentityConfiguration as UserIdentityConfiguration
    from drumline.spec.registered.compute import AmlCompute as AmlCompute
    from drumline.spec.registered.compute import Compute as Compute
    from drumline.spec.registered.compute import KubernetesCompute as KubernetesCompute
    from drumline.spec.registered.compute import LocalCompute as LocalCompute
    from drumline.spec.registered.compute import SlurmCompute as SlurmCompute
    from drumline.spec.registered.workspace import load_workspace as load_workspace

_MODULES = {
    "UserIdentityConfiguration": "drumline.spec.parts.resources",
    "ManagedIdentityConfiguration": "drumline.spec.parts.resources",
    "AmlTokenConfiguration": "drumline.spec.parts.resources",
    "AmlCompute": "drumline.spec.registered.compute",
    "Command": "drumline.spec.jobs.command",
    "Compute": "drumline.spec.registered.compute",
    "Input": "drumline.spec.parts.io",
    "KubernetesCompute": "drumline.spec.registered.compute",
    "LocalCompute": "drumline.spec.registered.compute",
    "MLClient": "drumline.sdk.ml_client",
    "MpiDistribution": "drumline.spec.parts.resources",
    "Output": "drumline.spec.parts.io",
    "PyTorchDistribution": "drumline.spec.parts.resources",
    "RayDistribution": "drumline.spec.parts.resources",
    "SlurmCompute": "drumline.spec.registered.compute",
    "TensorFlowDistribution": "drumline.spec.parts.resources",
    "command": "drumline.spec.jobs.command",
    "load_component": "drumline.spec.load",
    "load_compute": "drumline.spec.load",
    "load_data": "drumline.spec.load",
    "load_datastore": "drumline.spec.load",
    "load_environment": "drumline.spec.load",
    "load_job": "drumline.spec.load",
    "load_model": "drumline.spec.load",
    "load_workspace": "drumline.spec.registered.workspace",
}

__all__ = sorted(_MODULES)  # noqa: PLE0605 - computed from the one table above


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'drumline' has no attribute {name!r}")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
