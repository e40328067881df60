"""
A team's MLflow server, by its REST interface: a job's run is created, ended and read there.

Without MLflow, which costs 1.3 s to import. Credentials are those of MLflow's own variables, and are kept nowhere.
Source: https://mlflow.org/docs/latest/rest-api.html, read from MLflow 3.17, and
https://mlflow.org/docs/latest/self-hosting/security/basic-http-auth for the variables.
"""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

from drumline.contract import status
from drumline.contract.errors import DrumlineError
from drumline.tracking.metrics import Point

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from ssl import SSLContext

_STATUS = {status.COMPLETED: "FINISHED", status.FAILED: "FAILED", status.CANCELED: "KILLED"}
_API = "/api/2.0/mlflow/"
_MOST_BYTES = 64 << 20
_PAGE = 25_000
"""Points in one answer; the most that a server gives."""

_MOST_POINTS = 2_000_000
_MOST_EXPERIMENTS = 1000
_MOST_CHILDREN = 100
_LONGEST_ID = 300
_CREDENTIALS = (
    "MLFLOW_TRACKING_TOKEN",
    "MLFLOW_TRACKING_USERNAME",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_INSECURE_TLS",
    "MLFLOW_TRACKING_SERVER_CERT_PATH",
    "MLFLOW_TRACKING_CLIENT_CERT_PATH",
)
_CREDENTIALS_HINT = (
    "MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, say who you are"
)


class ServerError(DrumlineError):
    """The server cannot be reached, or refuses a request."""


class Server:
    """
    A team's MLflow server. ``environ``: what MLflow's variables are looked up in. ``timeout_s``: of one answer; looking
    up a name may take longer, so whoever needs an end asks from a process or thread that can be left alone.
    """

    def __init__(self, uri: str, environ: Mapping[str, str], timeout_s: float = 5.0) -> None:
        self._base, self._headers = _without_user(uri.rstrip("/"))
        self._credentials = {name: environ[name] for name in _CREDENTIALS if environ.get(name)}
        self._timeout_s = timeout_s

    def create_run(self, name: str, experiment: str, user: str, tags: Mapping[str, str]) -> tuple[str, str]:
        """Create a run, and its experiment if needed, and return the ids of both. Raises ServerError."""
        experiment_id = self._experiment_id(experiment)
        run = self.call(
            "POST",
            "runs/create",
            experiment_id=experiment_id,
            run_name=name,
            user_id=user,
            start_time=int(time.time() * 1000),
            tags=[{"key": key, "value": value} for key, value in tags.items()],
        )
        # It becomes a variable of the ranks.
        run_id = _parse_id(_look_up(run, "run", "info", "run_id"))
        if not run_id:
            raise ServerError(f"{self._base} returned no id for the run")
        return run_id, experiment_id

    def end_run(self, run_id: str, job_status: str) -> None:
        """End a run. Raises ServerError."""
        how = _STATUS.get(job_status, "FAILED")
        self.call("POST", "runs/update", run_id=run_id, status=how, end_time=int(time.time() * 1000))

    def latest(self, run_id: str) -> dict[str, Point]:
        """Return the newest value of each metric, by name. Raises ServerError."""
        data = _look_up(self.call("GET", "runs/get", run_id=run_id), "run", "data", "metrics")
        return dict(_parse_points(data))

    def history(self, run_id: str, name: str) -> list[Point]:
        """Return every value, in the server's order. Raises ServerError."""
        found: list[Point] = []
        token = ""
        for _ in range(_MOST_POINTS // _PAGE):
            asked = {"run_id": run_id, "metric_key": name, "max_results": _PAGE}
            answer = self.call(
                "GET", "metrics/get-history", **asked, **({"page_token": token} if token else {})
            )
            found += [point for _, point in _parse_points(answer.get("metrics"))]
            before, token = token, str(answer.get("next_page_token") or "")
            if not token or token == before:
                break
        return found

    def children(self, run_id: str) -> dict[str, str]:
        """Return the ids of the runs below that one, in any experiment, with their names. Raises ServerError."""
        listed = self.call("POST", "experiments/search", max_results=_MOST_EXPERIMENTS).get("experiments")
        ids = [_look_up(one, "experiment_id") for one in _as_list(listed)]
        if not ids or "'" in run_id:
            return {}
        runs = self.call(
            "POST",
            "runs/search",
            experiment_ids=ids,
            filter=f"tags.`mlflow.parentRunId` = '{run_id}'",
            max_results=_MOST_CHILDREN,
        ).get("runs")
        found = [_look_up(one, "info") for one in _as_list(runs)]
        return {
            str(info["run_id"]): str(info.get("run_name") or "")
            for info in found
            if isinstance(info, dict) and info.get("run_id")
        }

    def call(self, method: str, endpoint: str, **content: Any) -> dict[str, Any]:
        """Send a request and return the answer. Raises ServerError."""
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.parse import urlencode
        from urllib.request import Request

        url, body = self._base + _API + endpoint, None
        if method == "GET":
            url += "?" + urlencode(content)
        else:
            body = json.dumps(content).encode()
        headers = {"Content-Type": "application/json", **self._headers, **_authorization(self._credentials)}
        try:
            request = Request(url, body, headers, method=method)  # noqa: S310 - http or https: ``is_server``
            with self._opener().open(request, timeout=self._timeout_s) as answer:
                text = answer.read(_MOST_BYTES)
            data = json.loads(text)
        except HTTPError as error:
            with error:
                why = self._without_secrets(_read_message(error))
            what = f"{self._base} refuses {endpoint}: {why}"
            raise ServerError(what, _CREDENTIALS_HINT if error.code in (401, 403) else "") from None
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            why = self._without_secrets(str(getattr(error, "reason", None) or error))
            raise ServerError(f"{self._base} does not answer as an MLflow server: {why}") from None
        if not isinstance(data, dict):
            raise ServerError(f"{self._base} does not answer as an MLflow server")
        return data

    def _without_secrets(self, words: str) -> str:
        """Hide credentials, which a server may repeat, in a text that is kept with the job."""
        sent = {**self._headers, **_authorization(self._credentials)}.get("Authorization", "")
        secrets = [self._credentials.get(f"MLFLOW_TRACKING_{name}", "") for name in ("PASSWORD", "TOKEN")]
        for secret in (sent.partition(" ")[2], *secrets):
            words = words.replace(secret.strip(), "***") if secret.strip() else words
        return words

    def _experiment_id(self, name: str) -> str:
        found = self._find_experiment(name)
        if found:
            return found
        try:
            return _parse_id(self.call("POST", "experiments/create", name=name)["experiment_id"])
        except (ServerError, KeyError) as error:
            # Another job may have made it meanwhile.
            found = self._find_experiment(name)
            if found:
                return found
            if isinstance(error, ServerError):
                raise
            raise ServerError(f"{self._base} returned no id for the experiment {name!r}") from None

    def _find_experiment(self, name: str) -> str:
        """Return the id of an experiment; empty if there is none."""
        try:
            found = self.call("GET", "experiments/get-by-name", experiment_name=name).get("experiment")
        except ServerError as error:
            if "RESOURCE_DOES_NOT_EXIST" in error.message:
                return ""
            raise
        if _look_up(found, "lifecycle_stage") == "deleted":
            raise ServerError(
                f"experiment {name!r} is deleted at {self._base}", "restore it, or take another name"
            )
        return _parse_id(_look_up(found, "experiment_id"))

    def _opener(self) -> Any:
        from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

        class NoRedirect(HTTPRedirectHandler):
            """Follows no redirect: another server would get the credentials."""

            def redirect_request(self, *_: Any, **__: Any) -> None:
                return None

        if not self._base.lower().startswith("https:"):
            return build_opener(NoRedirect)
        return build_opener(NoRedirect, HTTPSHandler(context=_make_tls_context(self._credentials)))


def _authorization(credentials: Mapping[str, str]) -> dict[str, str]:
    user, password = (credentials.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    if user and password:
        return {"Authorization": _basic(f"{user}:{password}")}
    # As a file has it, with the end of its line.
    token = credentials.get("MLFLOW_TRACKING_TOKEN", "").strip()
    if not (token.isascii() and token.isprintable()):
        raise ServerError("MLFLOW_TRACKING_TOKEN has characters that no token can have")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _basic(text: str) -> str:
    from base64 import b64encode

    return "Basic " + b64encode(text.encode()).decode()


def _without_user(uri: str) -> tuple[str, dict[str, str]]:
    """Return the address alone, and its user as a header."""
    scheme, _, rest = uri.partition("://")
    authority, slash, path = rest.partition("/")
    user, at, host = authority.rpartition("@")
    if not at:
        return uri, {}
    from urllib.parse import unquote

    return f"{scheme}://{host}{slash}{path}", {"Authorization": _basic(unquote(user))}


def _make_tls_context(credentials: Mapping[str, str]) -> SSLContext:
    import ssl

    context = ssl.create_default_context(cafile=credentials.get("MLFLOW_TRACKING_SERVER_CERT_PATH"))
    if credentials.get("MLFLOW_TRACKING_INSECURE_TLS", "").lower() in ("1", "true"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if credentials.get("MLFLOW_TRACKING_CLIENT_CERT_PATH"):
        context.load_cert_chain(credentials["MLFLOW_TRACKING_CLIENT_CERT_PATH"])
    return context


def _read_message(error: Any) -> str:
    """Return the server's message on one line, or its status."""
    from http.client import HTTPException

    try:
        data = json.loads(error.read(4096))
        words = f"{data['error_code']}: {data['message']}"
    except (OSError, HTTPException, ValueError, KeyError, TypeError, RecursionError):
        location = error.headers.get("Location") if error.headers else None
        words = f"HTTP {error.code}" + (f", and leads to {location}" if location else "")
    return " ".join(words.split())[:300]


def _parse_points(listed: Any) -> Iterator[tuple[str, Point]]:
    for one in _as_list(listed):
        try:
            yield (
                str(one["key"]).encode("utf-8", "replace").decode(),
                Point(int(one.get("step") or 0), int(one["timestamp"]), _parse_number(one.get("value"))),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            continue


def _parse_number(value: Any) -> float:
    """Parse a number: text if it is not finite, missing for 0. MLflow's databases have the largest float for inf."""
    number = float(value or 0.0)
    return math.copysign(math.inf, number) if abs(number) >= 1.7976931348623157e308 else number


def _parse_id(value: Any) -> str:
    """Return an id; empty for anything else."""
    return value if isinstance(value, str) and value.isprintable() and len(value) < _LONGEST_ID else ""


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _look_up(data: Any, *keys: str) -> Any:
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data
