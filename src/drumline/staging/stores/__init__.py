"""Stores of remote data: a file a service, and one line in the table below."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from drumline.contract import extras, uris

if TYPE_CHECKING:
    from collections.abc import Mapping

    from drumline.contract.uris import Place
    from drumline.staging.stores.store import Store

_MODULES = {uris.AZURE: "azure", uris.S3: "s3", uris.GS: "gs", uris.HF: "hub", uris.HTTP: "web"}


def open_store(place: Place, credentials: Mapping[str, Any] | None = None) -> Store:
    """
    Open the store of a place. May ask for a token, and so block for some seconds.

    ``credentials``: a datastore's record, as ``spec.datastores.to_dict`` makes it; None: what the service's own library
    would find on this machine.

    Raises NodeError, for a package that is not installed too.
    """
    service = place.service
    if credentials is None and extras.is_web_file(place) and extras.missing_for(place.uri):
        service = uris.HTTP
    store: Store = import_module(f"{__name__}.{_MODULES[service]}").open_store(place, credentials)
    return store
