"""
A workspace of v1: the jobs, data and environments of one home.

Source: https://learn.microsoft.com/python/api/azureml-core/azureml.core.workspace.workspace
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from drumline.contract import folder
from drumline.sdk.ml_client import MLClient

if TYPE_CHECKING:
    from drumline.compat.environment import Environment
    from drumline.sdk.v1.compute import AmlCompute
    from drumline.sdk.v1.data import FileDataset
    from drumline.sdk.v1.datastore import Datastore
    from drumline.sdk.v1.experiment import Experiment
    from drumline.sdk.v1.model import Model
    from drumline.sdk.v1.run import Run


class Workspace:
    """
    Named by its name alone: there is nobody to sign in to, so subscription and resource group are only kept.
    It is there from its first use on.
    """

    def __init__(
        self,
        subscription_id: str | None = None,
        resource_group: str | None = None,
        workspace_name: str | None = None,
        auth: Any = None,
        **kwargs: Any,
    ) -> None:
        self._client = MLClient(None, subscription_id, resource_group, workspace_name)
        self.name = workspace_name or ""
        self.subscription_id = subscription_id or ""
        self.resource_group = resource_group or ""
        self.location = "local"
        self.tags: dict[str, str] = {}

    @staticmethod
    def from_config(
        path: str | os.PathLike[str] | None = None,
        auth: Any = None,
        _logger: Any = None,
        _file_name: str | None = None,
    ) -> Workspace:
        """
        That of ``config.json`` or ``.azureml/config.json``, looked for in ``path`` and the folders above it.

        Raises UsageError when there is none, or it is not one.
        """
        found = MLClient.from_config(None, path=path, file_name=_file_name)
        return Workspace(found.subscription_id, found.resource_group_name, found.workspace_name)

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
        """As ``get``: one that is there is no error, whatever ``exist_ok`` says."""
        return Workspace(subscription_id, resource_group, name)

    @staticmethod
    def list(subscription_id: str | None = None, **kwargs: Any) -> dict[str, list[Workspace]]:
        """Those that jobs or data have been put into, by name."""
        return {name: [Workspace(subscription_id, None, name)] for name in folder.workspace_names()}

    @staticmethod
    def setup() -> Workspace:
        """As ``from_config``."""
        return Workspace.from_config()

    @staticmethod
    def of_rank() -> Workspace:
        """The one that the job of this process is in."""
        return Workspace(workspace_name=folder.current_workspace() or None)

    def write_config(self, path: str | os.PathLike[str] | None = None, file_name: str | None = None) -> None:
        """``.azureml/config.json`` in ``path``, over what is there. Raises OSError."""
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
        """Where its jobs log to, for ``mlflow.set_tracking_uri``."""
        from drumline.control import workspaces
        from drumline.sdk.tracking import let_mlflow_read

        uri = str(workspaces.described(self.name).mlflow_tracking_uri)
        let_mlflow_read(uri)
        return uri

    def get_details(self) -> dict[str, Any]:
        from drumline.control.workspaces import arm_id

        return {
            "id": arm_id(self.name, subscription=self.subscription_id, group=self.resource_group),
            "name": self.name,
            "location": self.location,
            "resourceGroup": self.resource_group,
            "tags": {},
        }

    # what is in it

    @property
    def compute_targets(self) -> dict[str, AmlCompute]:
        """Those of this machine, which all workspaces share."""
        from drumline.sdk.v1.compute import ComputeTarget

        return {target.name: target for target in ComputeTarget.list(self)}

    def get_default_compute_target(self, type: str = "CPU") -> AmlCompute | None:
        """None: there is no default."""
        return None

    @property
    def experiments(self) -> dict[str, Experiment]:
        """Those that a job is of."""
        from drumline.control import jobs
        from drumline.sdk.v1.experiment import Experiment

        with self._here():
            names = {one["experiment_name"] for one in jobs.described(jobs.names(archived=None))}
        return {name: Experiment(self, name) for name in sorted(names)}

    @property
    def environments(self) -> dict[str, Environment]:
        """Those that were registered; Azure's own are had by their name too, and are in no list."""
        from drumline.control import assets

        with self._here():
            return _Environments({one.name: self._environment(one.name) for one in assets.all("environment")})

    @property
    def datasets(self) -> dict[str, FileDataset]:
        from drumline.control import assets
        from drumline.sdk.v1.data import FileDataset

        with self._here():
            return {one.name: FileDataset.of(one) for one in assets.all("data")}

    @property
    def models(self) -> dict[str, Model]:
        """The latest version of each."""
        from drumline.sdk.v1.model import Model

        return {one.name: one for one in Model.list(self, latest=True)}

    @property
    def datastores(self) -> dict[str, Datastore]:
        from drumline.control import datastores
        from drumline.sdk.v1.datastore import Datastore

        with self._here():
            return {name: Datastore(self, name) for name in datastores.names()}

    def get_default_datastore(self) -> Datastore:
        from drumline.control import datastores
        from drumline.sdk.v1.datastore import Datastore

        return Datastore(self, datastores.DEFAULT)

    def get_run(self, run_id: str) -> Run:
        """Raises NotFoundError."""
        from drumline.control import jobs
        from drumline.sdk.v1.experiment import Experiment
        from drumline.sdk.v1.run import Run

        with self._here():
            described = jobs.describe(run_id)
        return Run(Experiment(self, described["experiment_name"]), run_id)

    # what the above is made of

    def _here(self) -> Any:
        """For the length of a ``with``, jobs are those of this workspace."""
        return folder.workspace(self._client.jobs._workspace)

    def _environment(self, name: str, version: str | None = None) -> Environment:
        """Raises NotFoundError for one that is neither registered nor Azure's own."""
        from drumline.compat.environment import Environment, curated, is_azures
        from drumline.contract.errors import NotFoundError
        from drumline.control import assets

        made = Environment(name)
        try:
            with self._here():
                found = assets.get("environment", name, version=version)
        except NotFoundError:
            if not is_azures(name):
                raise
            return curated(name, version)
        made.version, made.docker.base_image = str(found.version), found.image
        if found.python:
            made.python.user_managed_dependencies, made.python.interpreter_path = True, found.python
        made.reference = f"azureml:{name}:{found.version}"
        return made

    def _register_environment(self, given: Environment) -> Environment:
        """Raises SpecError, UsageError."""
        from drumline.compat.environment import to_environment
        from drumline.control import assets

        today, _ = to_environment(given)
        if today is None or isinstance(today, str):
            return given
        with self._here():
            kept = assets.create(today)
        registered = self._environment(kept.name, str(kept.version))
        registered.environment_variables = dict(given.environment_variables)
        return registered

    def __repr__(self) -> str:
        return f"Workspace.create(name={self.name!r}, subscription_id={self.subscription_id!r})"


class _Environments(dict[str, "Environment"]):
    def __missing__(self, name: str) -> Environment:
        from drumline.compat.environment import curated, is_azures

        if not is_azures(name):
            raise KeyError(name)
        return curated(name)
