"""Services on loopback, made for these tests and ended after them; no variables of clouds at hand."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from http_server import HttpServer, http_server
from hub_server import HubServer, hub_server
from services import cloud_variables

from drumline.contract.uris import parse_uri
from drumline.staging.stores import connection, open_store
from drumline.staging.stores.store import Store


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of whoever runs the tests; and no long pauses between tries."""
    for name in cloud_variables():
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(connection, "FIRST_PAUSE_S", 0.001)


@pytest.fixture
def web() -> Iterator[HttpServer]:
    with http_server() as server:
        yield server


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with hub_server() as server:
        yield server


@pytest.fixture
def open_uri() -> Callable[..., Store]:
    """By the address alone, or with a datastore's record."""
    return lambda uri, record=None: open_store(parse_uri(uri), record)
