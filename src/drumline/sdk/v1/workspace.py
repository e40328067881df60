"""
A workspace of v1: the jobs, data and environments of one folder.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.workspace.workspace
"""

from __future__ import annotations

import json
import os
from typing import Any

from drumline.azure import NotSupportedError
from drumline.compat.run_configuration.environment import (
    Environment,
    curated_environment,
    is_azures,
    to_environment,
)
from drumline.contract import folder
from drumline.contract.errors import NotFoundError, UsageError
from drumline.control.assets import asset_verbs, datastore_verbs
from drumline.control.facts import description
from drumline.control.jobs import job_folders
from drumline.control.settings import workspaces
from drumline.sdk.job_views import let_mlflow_read
from drumline.sdk.ml_client import MLClient
from drumline.sdk.v1.assets.dataset import Dataset, FileDataset
from drumline.sdk.v1.assets.datastore import Datastore
from drumline.sdk.v1.assets.model import Model
from drumline.sdk.v1.compute import AmlCompute, ComputeTarget, NamedTarget
from drumline.sdk.v1.experiment import Experiment
from drumline.sdk.v1.runs.run import Run
from drumline.sdk.v1.scope import WorkspaceScope


class Workspace(WorkspaceScope):
    """
    A workspace, identified by its name alone: subscription and resource group are stored without an effect.
    It exists from its first use on.
    """

    @staticmethod
    def from_config(
        path: str | os.PathLike[str] | None = None,
        auth: Any = None,
        _logger: Any = None,
        _file_name: str | None = None,
    ) -> Workspace:
        """
        Return that of ``config.json`` or ``.azureml/config.json`` in ``path`` or the nearest folder above it.

        Raises UsageError when there is none, or it is not one.
        """
        client = MLClient.from_config(None, path=path, file_name=_file_name)
        return Workspace(client.subscription_id, client.resource_group_name, client.workspace_name)

    @staticmethod
    def get(
        name: str,
        auth: Any = None,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        **kwargs: Any,
    ) -> Workspace:
        return Workspace(subscription_id, resource_group, name)

    @staticmethod
    def create(
        name: str,
        auth: Any = None,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        **kwargs: Any,
    ) -> Workspace:
        """Return it, as ``get``: an existing one is no error, with any ``exist_ok``."""
        return Workspace(subscription_id, resource_group, name)

    @staticmethod
    def list(subscription_id: str | None = None, **kwargs: Any) -> dict[str, list[Workspace]]:
        """List workspaces with jobs or data, by name."""
        return {name: [Workspace(subscription_id, None, name)] for name in folder.workspace_names()}

    @staticmethod
    def setup() -> Workspace:
        """Return the configured one, as ``from_config``."""
        return Workspace.from_config()

    def write_config(self, path: str | os.PathLike[str] | None = None, file_name: str | None = None) -> None:
        """Write ``.azureml/config.json`` in ``path``, over an existing one. Raises OSError."""
        place = os.path.join(os.fspath(path or "."), ".azureml")
        os.makedirs(place, exist_ok=True)
        names = {
            "subscription_id": self.subscription_id,
            "resource_group": self.resource_group,
            "workspace_name": self.name,
        }
        with open(os.path.join(place, file_name or "config.json"), "w", encoding="utf-8") as file:
            json.dump(names, file, indent=4)

    def get_mlflow_tracking_uri(self) -> str:
        """Return where its jobs log to, for ``mlflow.set_tracking_uri``."""
        uri = str(workspaces.describe(self.name).mlflow_tracking_uri)
        let_mlflow_read(uri)
        return uri

    def get_details(self) -> dict[str, Any]:
        return {
            "id": workspaces.arm_id(self.name, subscription=self.subscription_id, group=self.resource_group),
            "name": self.name,
            "location": self.location,
            "resourceGroup": self.resource_group,
            "tags": {},
        }

    # what is in it

    @property
    def compute_targets(self) -> dict[str, AmlCompute]:
        """Return the computes of this machine, which all workspaces share; of others those that jobs may name."""
        return _Targets(self, {target.name: target for target in ComputeTarget.list(self)})

    def get_default_compute_target(self, type: str = "CPU") -> AmlCompute | None:
        """Return None: there is no default."""
        return None

    @property
    def experiments(self) -> dict[str, Experiment]:
        """Return the experiments that have jobs."""
        with self._here():
            names = {
                job["experiment_name"] for job in description.show_jobs(job_folders.names(archived=None))
            }
        return {name: Experiment(self, name) for name in sorted(names)}

    @property
    def environments(self) -> dict[str, Environment]:
        """Return the registered environments; Azure's own can be had by name and are not listed."""
        with self._here():
            return _Environments(
                {asset.name: self._environment(asset.name) for asset in asset_verbs.all("environment")}
            )

    @property
    def datasets(self) -> dict[str, FileDataset]:
        return Dataset.get_all(self)

    @property
    def models(self) -> dict[str, Model]:
        """Return the latest version of each model."""
        return {model.name: model for model in Model.list(self, latest=True)}

    @property
    def datastores(self) -> dict[str, Datastore]:
        with self._here():
            return {name: Datastore(self, name) for name in datastore_verbs.names()}

    def get_default_datastore(self) -> Datastore:
        return Datastore.get_default(self)

    def set_default_datastore(self, name: str) -> None:
        """Accept the default's own name. Raises UsageError for any other."""
        if name != datastore_verbs.DEFAULT:
            raise UsageError(
                f"the default datastore is {datastore_verbs.DEFAULT!r}", "Datastore.get(ws, name)"
            )

    def get_default_keyvault(self) -> None:
        """Raise NotSupportedError: a job gets secrets as environment variables."""
        raise NotSupportedError("get_default_keyvault")

    def get_run(self, run_id: str) -> Run:
        """Return the run of that id. Raises NotFoundError."""
        with self._here():
            described = description.show_job(run_id)
        return Run(Experiment(self, described["experiment_name"]), run_id)

    # what the above is made of

    def _environment(self, name: str, version: str | None = None) -> Environment:
        """Return the environment. Raises NotFoundError if it is neither registered nor Azure's own."""
        made = Environment(name)
        try:
            with self._here():
                found = asset_verbs.get("environment", name, version=version)
        except NotFoundError:
            if not is_azures(name):
                raise
            return curated_environment(name, version)
        made.version, made.docker.base_image = str(found.version), found.image
        if found.python:
            made.python.user_managed_dependencies, made.python.interpreter_path = True, found.python
        made.reference = f"azureml:{name}:{found.version}"
        return made

    def _register_environment(self, given: Environment) -> Environment:
        """Register the environment and return it. Raises SpecError, UsageError."""
        today, _ = to_environment(given)
        if today is None or isinstance(today, str):
            return given
        with self._here():
            kept = asset_verbs.create(today)
        registered = self._environment(kept.name, str(kept.version))
        registered.environment_variables = dict(given.environment_variables)
        return registered


class _Targets(dict[str, "AmlCompute"]):
    def __init__(self, workspace: Workspace, targets: dict[str, AmlCompute]) -> None:
        super().__init__(targets)
        self._workspace = workspace

    def __missing__(self, name: str) -> AmlCompute:
        try:
            return NamedTarget(self._workspace, name)
        except NotFoundError as error:
            raise KeyError(name) from error


class _Environments(dict[str, "Environment"]):
    def __missing__(self, name: str) -> Environment:
        if not is_azures(name):
            raise KeyError(name)
        return curated_environment(name)
