"""
S3, and services with its interface.

Access: what botocore finds (variables, profiles, SSO, roles) where that package is installed, else what obstore
finds by itself (variables, roles), else nobody. Regions and endpoints: the variables and the profile of the AWS SDKs,
https://docs.aws.amazon.com/sdkref/latest/guide/settings-reference.html.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from drumline.contract.errors import NodeError
from drumline.staging.stores.connection import request_headers
from drumline.staging.stores.objects import Access, ObjectStore, import_obstore, make_client_options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from drumline.contract.uris import Place

_HINT = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for who is not Amazon AWS_ENDPOINT_URL too"
_ROLES = (
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_AMAZON = "https://s3.amazonaws.com"


def open_store(place: Place, credentials: Mapping[str, Any] | None) -> ObjectStore:
    stores = import_obstore("s3", place)
    session = _session()
    endpoint = _endpoint(session)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    region = region or str(_profile(session).get("region") or "")
    region = region or ("us-east-1" if endpoint else region_of(place.container))
    config: dict[str, Any] = {"region": region}
    if endpoint:
        config["endpoint"] = endpoint
    tried, provider = _provider(session)
    if provider is None and not any(os.environ.get(name) for name in ("AWS_ACCESS_KEY_ID", *_ROLES)):
        tried, config["skip_signature"] = "without any credentials, since none were found", True
    made = stores.S3Store(place.container, credential_provider=provider, **config, **make_client_options())
    return ObjectStore(place, Access(made, f"{tried}, region {region}", _HINT, etag_is_md5=True))


def _session() -> Any:
    """Return botocore's session; None if it is not installed."""
    try:
        import botocore.session
    except ImportError:
        return None
    return botocore.session.Session()


def _endpoint(session: Any) -> str:
    if os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true":
        return ""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        if os.environ.get(name):
            return os.environ[name].rstrip("/")
    profile = _profile(session)
    services = profile.get("services")
    own = session.full_config.get("services", {}).get(services, {}) if services else {}
    return str(own.get("s3", {}).get("endpoint_url") or profile.get("endpoint_url") or "").rstrip("/")


def _profile(session: Any) -> dict[str, Any]:
    if session is None:
        return {}
    from botocore.exceptions import ProfileNotFound

    try:
        return dict(session.get_scoped_config())
    except ProfileNotFound as error:
        raise NodeError(
            f"AWS_PROFILE names an unknown profile: {session.profile!r}",
            "`aws configure list-profiles` lists them",
        ) from error


def _provider(session: Any) -> tuple[str, Callable[[], dict[str, Any]] | None]:
    if session is None:
        return "with the variables AWS_...", None
    found = _find_credentials(session)
    if found is None:
        return "", None

    def provide() -> dict[str, Any]:
        frozen = found.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + timedelta(minutes=10),
        }

    return f"with credentials of botocore ({found.method})", provide


def _find_credentials(session: Any) -> Any:
    from botocore.exceptions import BotoCoreError

    try:
        found = session.get_credentials()
        if found is not None:
            found.get_frozen_credentials()
    except BotoCoreError as error:
        raise NodeError(
            f"could not get credentials for S3: {str(error).rstrip('.')}",
            "aws sso login, or aws configure",
        ) from error
    return found


def region_of(bucket: str, service: str = _AMAZON) -> str:
    """Return the region that Amazon tells everybody who asks for the bucket; us-east-1 if it tells none."""
    try:
        found = request_headers(f"{service}/{bucket}", {}, any_status=True)
    except (OSError, NodeError):
        return "us-east-1"
    return found.get("x-amz-bucket-region") or "us-east-1"
