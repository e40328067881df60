"""
Google's cloud storage.

Access: GOOGLE_APPLICATION_CREDENTIALS, what ``gcloud auth application-default login`` left, the machine's own
service account on Google's machines, else nobody.
Source: https://cloud.google.com/docs/authentication/application-default-credentials.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from drumline.staging.stores.connection import request_headers
from drumline.staging.stores.objects import Access, ObjectStore, import_obstore, make_client_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drumline.contract.uris import Place

_HINT = "set GOOGLE_APPLICATION_CREDENTIALS, or run `gcloud auth application-default login`"
_WITH_GCLOUD = "with the application default credentials of gcloud"
_VARIABLES = (
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "SERVICE_ACCOUNT",
    "GOOGLE_BEARER_TOKEN",
)


def open_store(place: Place, credentials: Mapping[str, Any] | None) -> ObjectStore:
    stores = import_obstore("gs", place)
    config: dict[str, Any] = {}
    tried = _describe_credentials()
    if tried == _WITH_GCLOUD:
        config["application_credentials"] = _gcloud_credentials_path()
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if emulator:
        config["base_url"] = (emulator if "://" in emulator else f"http://{emulator}").rstrip("/")
        tried = ""
    if not tried:
        config["skip_signature"] = True
    made = stores.GCSStore(place.container, **config, **make_client_options())
    asked = tried or "without any credentials, since none were found"
    headers_of = _headers_of(made) if tried and not emulator else None
    return ObjectStore(place, Access(made, asked, _HINT, headers_of, etag_is_md5=True))


def _describe_credentials() -> str:
    """Return what obstore will find; empty: nothing, and then it would ask for a machine's account, and wait."""
    for name in _VARIABLES:
        if os.environ.get(name):
            return f"with {name}"
    if os.path.isfile(_gcloud_credentials_path()):
        return _WITH_GCLOUD
    if os.environ.get("GCE_METADATA_HOST") or "Google" in _product_name():
        return "as the service account of this machine"
    return ""


def _gcloud_credentials_path() -> str:
    folder = os.environ.get("CLOUDSDK_CONFIG") or os.path.expanduser("~/.config/gcloud")
    return os.path.join(folder, "application_default_credentials.json")


def _product_name() -> str:
    try:
        with open("/sys/class/dmi/id/product_name", encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _headers_of(made: Any) -> Callable[[str], dict[str, str]]:
    def ask(key: str) -> dict[str, str]:
        import obstore

        return request_headers(str(obstore.sign(made, "HEAD", key, timedelta(minutes=10))), {})

    return ask
