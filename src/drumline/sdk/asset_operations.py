"""
``MLClient.data``, ``.environments``, ``.models``, ``.components`` and ``.datastores``.

Every method that takes a name raises NotFoundError for what is not there.
Source: https://learn.microsoft.com/python/api/azure-ai-ml/azure.ai.ml.operations
"""

from __future__ import annotations

import os
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from drumline.contract.errors import SpecError, UsageError
from drumline.contract.record import describe_record
from drumline.control.assets import asset_verbs, datastore_verbs
from drumline.control.assets.asset_verbs import problems_of
from drumline.control.environments import environment_builds
from drumline.sdk.operations import Operations, print_warnings
from drumline.spec.jobs.component import Component
from drumline.spec.jobs.validate import ValidationResult
from drumline.spec.load import load_component
from drumline.spec.parts.environment import Environment
from drumline.spec.registered.assets import Data, Model
from drumline.spec.registered.datastores import Datastore, HiddenCredentials

if TYPE_CHECKING:
    from collections.abc import Iterator


T = TypeVar("T")

_ARCHIVED = {"ActiveOnly": False, "ArchivedOnly": True}


class _Versioned(Operations, Generic[T]):
    _kind = ""
    _class: type[Any] = object

    def get(self, name: str, version: str | None = None, label: str | None = None) -> T:
        """Return one version. Raises UsageError without either, as azure-ai-ml does; ``label="latest"``: the newest."""
        if not version and not label:
            raise UsageError("must provide either version or label", 'label="latest"')
        found: T = asset_verbs.get(self._kind, name, version, label)
        return found

    def archive(self, name: str, version: str | None = None, label: str | None = None, **kwargs: Any) -> None:
        """Hide a version, or the name with all versions."""
        asset_verbs.archive(self._kind, name, version, label)

    def restore(self, name: str, version: str | None = None, label: str | None = None, **kwargs: Any) -> None:
        asset_verbs.restore(self._kind, name, version, label)

    def set_label(self, name: str, version: str, label: str) -> None:
        """Put it on that version, and off any other. Ours: azure-ai-ml has no method for it."""
        asset_verbs.update(self._kind, name, version, changes={}, labels=[label])

    def share(self, name: str, version: str, **kwargs: Any) -> None:
        """Refuse with UsageError: there are no registries."""
        hint = "assets registered without a workspace are visible in all workspaces"
        raise UsageError("registries are not supported", hint)

    def _create(self, entity: Any, *, version: str | None = None, check: bool = True) -> T:
        if not isinstance(entity, self._class):
            raise SpecError(
                f"expected {self._class.__name__}, got {type(entity).__name__}",
                f"{self._class.__name__}(...)",
            )
        made: T = asset_verbs.create(entity, version=version, check=check)
        print_warnings(made._warnings)  # type: ignore[attr-defined]
        return made

    def _list(self, name: str | None, list_view_type: Any) -> Iterator[T]:
        archived = _ARCHIVED.get(str(getattr(list_view_type, "value", list_view_type)))
        return iter(
            asset_verbs.all(self._kind, name, archived=archived, damaged=lambda said: print_warnings([said]))
        )


class DataOperations(_Versioned[Data]):
    _kind = "data"
    _class = Data

    def create_or_update(self, data: Data) -> Data:
        """
        Register it, as the next version when it has none. What its path leads to stays where it is.

        Raises SpecError, PlanError; UsageError for a version that is there with another path or type.
        """
        return self._create(data)

    def list(self, name: str | None = None, *, list_view_type: Any = "ActiveOnly") -> Iterator[Data]:
        """List the latest of each name, with ``latest_version``; all versions of ``name``, newest first."""
        return self._list(name, list_view_type)

    def mount(self, path: str, **kwargs: Any) -> None:
        """Refuse with UsageError: jobs read data at its path."""
        raise UsageError(
            "data is not mounted here: jobs read it at its path", 'get(..., label="latest").path'
        )

    def import_data(self, data_import: Any, **kwargs: Any) -> None:
        """Refuse with UsageError: databases are not supported."""
        raise UsageError("database inputs are not supported", "Data(path=...) of an exported file")


class EnvironmentOperations(_Versioned[Environment]):
    _kind = "environment"
    _class = Environment

    def create_or_update(self, environment: Environment) -> Environment:
        """
        Register it, as the next version when it has none, with the content of its conda file.

        Raises SpecError; UsageError for a version that is there and is another environment.
        """
        return self._create(environment)

    def list(self, name: str | None = None, *, list_view_type: Any = "ActiveOnly") -> Iterator[Environment]:
        """List the latest of each name, with ``latest_version``; all versions of ``name``, newest first."""
        return self._list(name, list_view_type)

    def build(
        self, name: str, version: str | None = None, label: str | None = None, *, force: bool = False
    ) -> dict[str, Any]:
        """
        Make what jobs of it run in, unless it is there. Blocks; what the tools say goes to standard error.

        Ours: azure-ai-ml has no method for it. Raises PlanError, UsageError where there is nothing to build,
        NodeError with the resolver's words where it cannot be built.
        """
        made = environment_builds.build(self.get(name, version, label), 2, is_forced=force)
        described: dict[str, Any] = describe_record(made)
        return described


class ModelOperations(_Versioned[Model]):
    _kind = "model"
    _class = Model

    def create_or_update(self, model: Model) -> Model:
        """
        Register it, as the next version when it has none. What its path leads to stays where it is.

        Raises SpecError, PlanError; UsageError for a version that is there with another path or type.
        """
        return self._create(model)

    def list(
        self, name: str | None = None, stage: str | None = None, *, list_view_type: Any = "ActiveOnly"
    ) -> Iterator[Model]:
        """List the latest of each name, with ``latest_version``; all versions of ``name``, newest first."""
        found = self._list(name, list_view_type)
        return (model for model in found if stage is None or model.stage == stage)

    def download(self, name: str, version: str, download_path: str | os.PathLike[str] = ".") -> None:
        """Copy it to ``download_path``/NAME. Raises NotFoundError, UsageError; PlanError for a missing file."""
        from drumline.control.assets.asset_files import download_model

        download_model(name, version, target=os.fspath(download_path))

    def package(self, name: str, version: str, package_request: Any, **kwargs: Any) -> None:
        """Refuse with UsageError: models are not deployed."""
        raise UsageError("deploying models is not supported", "models.download")


class ComponentOperations(_Versioned[Component]):
    _kind = "component"
    _class = Component

    def create_or_update(
        self,
        component: Any,
        version: str | None = None,
        *,
        skip_validation: bool = False,
        **kwargs: Any,
    ) -> Component:
        """
        Register it, as the next version when it has none, with its current code.

        component: also a function under ``@pipeline`` or mldesigner's ``@command_component``.
        Raises SpecError, PlanError; UsageError for a version that is there and is another component.
        """
        if isinstance(component, FunctionType):
            component = load_component(component)
        return self._create(component, version=version, check=not skip_validation)

    def list(self, name: str | None = None, *, list_view_type: Any = "ActiveOnly") -> Iterator[Component]:
        """List the latest of each name, with ``latest_version``; all versions of ``name``, newest first."""
        return self._list(name, list_view_type)

    def validate(
        self, component: Component, raise_on_failure: bool = False, **kwargs: Any
    ) -> ValidationResult:
        """Return every problem; raise SpecError with them when asked to."""
        problems = problems_of(component)
        if problems and raise_on_failure:
            raise SpecError(problems)
        return ValidationResult(problems, [])

    def download(
        self, name: str, download_path: str | os.PathLike[str] = ".", *, version: str | None = None
    ) -> None:
        """Copy its file and code to ``download_path``/NAME. Raises UsageError if that exists."""
        from drumline.control.assets.asset_files import download_component

        download_component(name, version, target=os.fspath(download_path))

    def prepare_for_sign(self, component: Component) -> None:
        """Refuse with UsageError: components are not signed."""
        raise UsageError("signing components is not supported", "components.create_or_update")


class DatastoreOperations(Operations):
    def create_or_update(self, datastore: Datastore) -> Datastore:
        """Create or replace it. Raises SpecError, UsageError; PlanError for a folder that is not there."""
        if not isinstance(datastore, Datastore):
            raise SpecError(
                f"{type(datastore).__name__} is not a datastore", "LocalDatastore(name=..., path=...)"
            )
        made = datastore_verbs.create(datastore)
        print_warnings(made._warnings)
        return _hide_secrets(made)

    def get(self, name: str, *, include_secrets: bool = False) -> Datastore:
        found = datastore_verbs.get(name)
        return found if include_secrets else _hide_secrets(found)

    def get_default(self, *, include_secrets: bool = False) -> Datastore:
        return self.get(datastore_verbs.DEFAULT, include_secrets=include_secrets)

    def list(self, *, include_secrets: bool = False) -> Iterator[Datastore]:
        """List them in alphabetical order."""
        found = datastore_verbs.all(damaged=lambda said: print_warnings([said]))
        return iter(found if include_secrets else [_hide_secrets(one) for one in found])

    def delete(self, name: str) -> None:
        """Forget it; what is in it stays."""
        datastore_verbs.delete(name)

    def mount(self, path: str, **kwargs: Any) -> None:
        """Refuse with UsageError: a datastore is a folder."""
        raise UsageError("datastores are not mounted here: each is a folder", "datastores.get(...).path")


def _hide_secrets(datastore: Datastore) -> Datastore:
    if datastore.credentials is not None:
        datastore.credentials = HiddenCredentials()
    return datastore


GROUPS: tuple[tuple[type[Any], str], ...] = (
    (Data, "data"),
    (Environment, "environments"),
    (Model, "models"),
    (Component, "components"),
    (Datastore, "datastores"),
)
"""Which attribute of a client takes entities of which class."""


def find_group(entity: object) -> str:
    """Return the attribute of a client that takes this entity; empty for what is not an asset."""
    return next((group for known, group in GROUPS if isinstance(entity, known)), "")
