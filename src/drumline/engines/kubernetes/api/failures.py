"""Failures between Drumline and an API server, each as one sentence with a hint."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, TypeVar

from drumline.contract.errors import EngineError, NotSubmittedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

LONGEST_WAIT_S = 30.0
"""For a server that says when to ask again, in one call."""

_BUSY = (429, 500, 502, 503, 504)
_LONGEST_TEXT = 300


class ApiRefusedError(NotSubmittedError):
    """Kubernetes has understood and said no. ``status``: of HTTP."""

    exit_code = 2

    def __init__(self, message: str, hint: str = "", *, status: int = 0) -> None:
        super().__init__(message, hint)
        self.status = status


class GoneError(ApiRefusedError):
    """There is no such object, says the API server itself."""


class ApiSilentError(EngineError):
    """
    The API server does not answer, or not in a way that can be read. ``again_s``: when it wants to be asked again; it
    has done nothing then. None: it does not say.
    """

    def __init__(self, message: str, hint: str = "", *, again_s: float | None = None) -> None:
        super().__init__(message, hint)
        self.again_s = again_s


class LogQuietError(ApiSilentError):
    """A log that is followed has nothing new, or its connection is dead."""


def ask_patiently(ask: Callable[[], T]) -> T:
    """Return what ``ask`` returns; a server that says when to ask again is obeyed, for a while. Raises EngineError."""
    until = time.monotonic() + LONGEST_WAIT_S
    while True:
        try:
            return ask()
        except ApiSilentError as error:
            if error.again_s is None or time.monotonic() + error.again_s > until:
                raise
            time.sleep(max(error.again_s, 0.1))


@contextlib.contextmanager
def translate(server: str) -> Iterator[None]:
    """Turn what goes wrong into EngineError."""
    import httpx2
    from lightkube.core.exceptions import ConfigError

    try:
        yield
    except httpx2.HTTPStatusError as error:
        raise _explain_answer(server, error) from error
    except (ConfigError, CredentialsError) as error:
        raise ApiRefusedError(
            f"the credentials of Kubernetes at {server} are not to be had: {shorten(error)}",
            "log in as your cluster's provider says, and see that kubectl get pods works",
        ) from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise ApiRefusedError(
            f"{server} is no address of Kubernetes: {shorten(error)}", "server of the kubeconfig's cluster"
        ) from error
    except KeyError as error:
        # lightkube stumbles over an answer without a type.
        cause = error.__context__
        if isinstance(cause, httpx2.HTTPStatusError):
            raise _explain_answer(server, cause) from error
        raise _say_odd(server, error) from error
    except (ValueError, TypeError, AttributeError) as error:
        raise _say_odd(server, error) from error
    except (httpx2.HTTPError, OSError, RuntimeError) as error:
        said = shorten(error) or type(error).__name__
        raise ApiSilentError(f"Kubernetes at {server} does not answer: {said}") from error


class CredentialsError(Exception):
    """There are none: why, for ``translate``."""


def shorten(error: object) -> str:
    """Return what an error says as one line."""
    said = " ".join(str(error).split())
    return said if len(said) <= _LONGEST_TEXT else said[: _LONGEST_TEXT - 3] + "..."


def _say_odd(server: str, error: Exception) -> ApiSilentError:
    said = shorten(error) or type(error).__name__
    return ApiSilentError(
        f"Kubernetes at {server} does not answer as an API server does: {said}",
        "server of the kubeconfig's cluster; a proxy may be in the way",
    )


def _explain_answer(server: str, error: Any) -> EngineError:
    """Return what an answer means that is no success; ``error``: an HTTPStatusError."""
    status = int(error.response.status_code)
    said = shorten(_find_message(error)) or f"{status} {error.response.reason_phrase}"
    if status == 404:
        # A proxy on the way that has lost the server says the same of all that there is.
        is_gone = _read_reason(error) == "NotFound"
        return GoneError(said, status=status) if is_gone else _say_odd(server, ValueError(said))
    if status in _BUSY:
        again_s = _read_wait(error.response.headers.get("Retry-After"))
        return ApiSilentError(f"Kubernetes at {server} is busy: {said}", again_s=again_s)
    if status < 400:
        return _say_odd(server, ValueError(said))
    if status == 401:
        return ApiRefusedError(
            f"Kubernetes at {server} does not accept the credentials: {said}",
            "they may have expired: log in again, and see that kubectl get pods works",
            status=status,
        )
    hint = "kubectl auth can-i --list shows what you may do" if status == 403 else ""
    return ApiRefusedError(f"Kubernetes refused it: {said}", hint, status=status)


def _find_message(error: Any) -> str:
    """Return the sentence of the server; empty where it sent none."""
    status = getattr(error, "status", None)
    return str(getattr(status, "message", None) or "")


def _read_reason(error: Any) -> str:
    """Return the word of an API server for why it said no; empty: the answer is no word of one."""
    try:
        answer = error.response.json()
    except ValueError:
        return ""
    is_status = isinstance(answer, dict) and answer.get("kind") == "Status"
    return str(answer.get("reason") or "") if is_status else ""


def _read_wait(text: str | None) -> float | None:
    """Return the seconds of a header Retry-After; None where there is none that can be read."""
    return float(text) if text and text.isascii() and text.isdecimal() else None
