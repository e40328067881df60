"""Access to remote data with the credentials of its datastore."""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumline.contract.errors import NodeError, NotFoundError
from drumline.contract.uris import parse_uri

if TYPE_CHECKING:
    from typing import Any

    from drumline.contract.plan import Fetch, Upload
    from drumline.contract.uris import Place
    from drumline.staging.stores.store import Store


def open_remote(one: Fetch | Upload) -> tuple[Place, Store]:
    """Return the place of an input or output, and the store that reads and writes it. Raises NodeError."""
    from drumline.staging.stores import open_store

    place = parse_uri(one.uri)
    return place, open_store(place, _read_credentials(one))


def _read_credentials(one: Fetch | Upload) -> dict[str, Any] | None:
    """Return the record of its datastore. Raises NodeError where this machine cannot see that."""
    if not one.datastore:
        return None
    from drumline.store.asset_versions import Records

    try:
        return Records(one.home, "datastore").read(one.datastore, "1")
    except (NotFoundError, OSError) as error:
        raise NodeError(
            f"{one.name}: the datastore {one.datastore!r} is not visible from this machine",
            f"it is kept in {one.home}, which this machine must see too",
        ) from error
