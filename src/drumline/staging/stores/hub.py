"""
The Hugging Face hub: listed through huggingface_hub, read over HTTP at one commit, so that nothing changes meanwhile.

HF_TOKEN (or what ``hf auth login`` left), HF_ENDPOINT and HF_HUB_OFFLINE are that package's:
https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from drumline.contract import extras, uris
from drumline.contract.errors import NodeError
from drumline.contract.hiding import hide_secrets
from drumline.staging.stores import connection, store
from drumline.staging.stores.store import Object
from drumline.staging.stores.web import WebFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from drumline.contract.uris import Place

_HINT = "set HF_TOKEN, or run `hf auth login`; a gated repository wants its terms accepted first"

_ROOTS = ("HTTPError", "RequestException")


def open_store(place: Place, credentials: Mapping[str, Any] | None) -> HubStore:
    return HubStore(place)


class HubStore:
    """A ``base.Store``."""

    can_list = True
    ranges = True

    def __init__(self, place: Place) -> None:
        self.url_shown = hide_secrets(place.uri)
        self._hub = self._import_library()
        repository, _, revision = place.container.partition("@")
        self._at: dict[str, str] = {"repo_id": repository, "repo_type": place.account.removesuffix("s")}
        self._path = place.path
        if self._path:
            store.check_path(self._path, self.url_shown)
        self._api = self._hub.HfApi()
        found = self._request(lambda: self._api.repo_info(revision=unquote(revision) or None, **self._at))
        self._at["revision"] = found.sha
        self._sha256: dict[str, str] = {}

    def stat(self) -> Object | None:
        if not self._path:
            return None
        found = self._request(lambda: self._api.get_paths_info(paths=[self._path], **self._at))
        files = [one for one in found if self._is_file(one) and one.path == self._path]
        return self._make_object("", files[0]) if files else None

    def list(self) -> Iterator[Object]:
        inside = self._path or None
        try:
            found = self._request(
                lambda: list(self._api.list_repo_tree(path_in_repo=inside, recursive=True, **self._at))
            )
        except _NotThereError:
            return
        for one in found:
            if self._is_file(one):
                relative = one.path[len(self._path) + 1 if self._path else 0 :]
                yield self._make_object(store.check_path(relative, self.url_shown), one)

    def read(self, found: Object, start: int, end: int) -> bytes:
        path = "/".join(part for part in (self._path, found.path) if part)
        kind = "" if self._at["repo_type"] == "model" else f"{self._at['repo_type']}s/"
        repository = f"{self._api.endpoint}/{kind}{self._at['repo_id']}"
        url = f"{repository}/resolve/{self._at['revision']}/{quote(path)}"
        token = self._hub.get_token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # At one commit there is but one version, whose ETag is the hub's or that of whom it sends us to.
        return WebFile(url, uris.join_uri(self.url_shown, found.path), headers).read(
            found._replace(version=""), start, end
        )

    def digest(self, found: Object) -> tuple[str, str] | None:
        digest = self._sha256.get(found.path)
        return ("sha256", digest) if digest else None

    def put(self, relative_path: str, local_file: str, on_bytes: Callable[[int], None]) -> None:
        raise NodeError(f"cannot write to {self.url_shown}: Drumline only reads the hub", "use `hf upload`")

    def _import_library(self) -> Any:
        try:
            import huggingface_hub
        except ImportError as error:
            what = f"{self.url_shown} is read through huggingface_hub, which is not installed here"
            raise NodeError(what, extras.install_line("hf")) from error
        return huggingface_hub

    def _is_file(self, one: Any) -> bool:
        return hasattr(one, "blob_id")

    def _make_object(self, path: str, one: Any) -> Object:
        if one.lfs is not None:
            self._sha256[path] = one.lfs.sha256
        return Object(path, int(one.size), str(one.blob_id))

    def _request(self, step: Callable[[], Any]) -> Any:
        """Call until it succeeds. Raises _NotThereError for a missing path, and NodeError for all the rest."""
        from huggingface_hub import errors

        tries = connection.Tries()
        while True:
            try:
                return step()
            except errors.HfHubHTTPError as error:
                status = error.response.status_code if error.response is not None else 0
                if isinstance(error, errors.EntryNotFoundError):
                    raise _NotThereError(f"{self.url_shown} is not there") from error
                if status not in connection.TRANSIENT_STATUSES or not tries.again():
                    raise self._make_error(error, status) from error
            except errors.OfflineModeIsEnabled as error:
                raise NodeError(f"could not read {self.url_shown}: HF_HUB_OFFLINE is set") from error
            except errors.HFValidationError as error:
                raise NodeError(
                    f"{self.url_shown} names no repository of the hub", str(error)[:200]
                ) from error
            except (self._transport_error, OSError) as error:
                if not tries.again():
                    what = f"could not read {self.url_shown}: {self._api.endpoint} cannot be reached"
                    raise NodeError(what, "check the network, HTTPS_PROXY and HF_ENDPOINT") from error

    @property
    def _transport_error(self) -> type[BaseException]:
        """Return the root error of the HTTP package that huggingface_hub uses, of which there have been several."""
        from huggingface_hub.errors import HfHubHTTPError

        kinds = [kind for kind in HfHubHTTPError.__mro__ if kind.__name__ in _ROOTS]
        return kinds[-1] if kinds else OSError

    def _make_error(self, error: Exception, status: int) -> NodeError:
        what = {
            401: "there is no such repository, or it is not for everybody",
            403: "it is not allowed",
            404: "there is no such repository or revision",
        }.get(status, f"the hub answered {status}")
        if type(error).__name__ == "GatedRepoError":
            what = "the repository is gated"
        return NodeError(
            f"could not read {self.url_shown}: {what}", _HINT if status in (401, 403, 404) else ""
        )


class _NotThereError(NodeError):
    pass
