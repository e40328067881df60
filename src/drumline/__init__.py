"""
The SDK: azure-ai-ml's names, for machines that people own.

``from drumline import command, Input, MLClient`` takes the place of ``from azure.ai.ml import ...``.
Names are loaded on first use, so that the command line stays quick.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = False
if TYPE_CHECKING:
    from drumline.sdk.ml_client import MLClient as MLClient
    from drumline.spec.command import Command as Command
    from drumline.spec.command import command as command
    from drumline.spec.compute import AmlCompute as AmlCompute
    from drumline.spec.compute import Compute as Compute
    from drumline.spec.compute import LocalCompute as LocalCompute
    from drumline.spec.compute import SlurmCompute as SlurmCompute
    from drumline.spec.distribution import MpiDistribution as MpiDistribution
    from drumline.spec.distribution import PyTorchDistribution as PyTorchDistribution
    from drumline.spec.distribution import RayDistribution as RayDistribution
    from drumline.spec.distribution import TensorFlowDistribution as TensorFlowDistribution
    from drumline.spec.identity import AmlTokenConfiguration as AmlTokenConfiguration
    from drumline.spec.identity import ManagedIdentityConfiguration as ManagedIdentityConfiguration
    from drumline.spec.identity import UserIdentityConfiguration as UserIdentityConfiguration
    from drumline.spec.io import Input as Input
    from drumline.spec.io import Output as Output
    from drumline.spec.load import load_component as load_component
    from drumline.spec.load import load_compute as load_compute
    from drumline.spec.load import load_data as load_data
    from drumline.spec.load import load_datastore as load_datastore
    from drumline.spec.load import load_environment as load_environment
    from drumline.spec.load import load_job as load_job
    from drumline.spec.load import load_model as load_model
    from drumline.spec.workspace import load_workspace as load_workspace

_HOMES = {
    "UserIdentityConfiguration": "drumline.spec.identity",
    "ManagedIdentityConfiguration": "drumline.spec.identity",
    "AmlTokenConfiguration": "drumline.spec.identity",
    "AmlCompute": "drumline.spec.compute",
    "Command": "drumline.spec.command",
    "Compute": "drumline.spec.compute",
    "Input": "drumline.spec.io",
    "LocalCompute": "drumline.spec.compute",
    "MLClient": "drumline.sdk.ml_client",
    "MpiDistribution": "drumline.spec.distribution",
    "Output": "drumline.spec.io",
    "PyTorchDistribution": "drumline.spec.distribution",
    "RayDistribution": "drumline.spec.distribution",
    "SlurmCompute": "drumline.spec.compute",
    "TensorFlowDistribution": "drumline.spec.distribution",
    "command": "drumline.spec.command",
    "load_component": "drumline.spec.load",
    "load_compute": "drumline.spec.load",
    "load_data": "drumline.spec.load",
    "load_datastore": "drumline.spec.load",
    "load_environment": "drumline.spec.load",
    "load_job": "drumline.spec.load",
    "load_model": "drumline.spec.load",
    "load_workspace": "drumline.spec.workspace",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - computed from the one table above


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'drumline' has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
