"""Credentials from a plugin that the kubeconfig names, asked as kubectl asks it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import httpx2

from drumline.engines.kubernetes.api.failures import CredentialsError, shorten

if TYPE_CHECKING:
    from collections.abc import Generator

LIMIT_S = 120.0
"""For one answer: a person may have to confirm in a browser."""


class PluginAuth(httpx2.Auth):  # type: ignore[misc]  # it has no types
    """Gives each request the token of a plugin, which is asked again when the server refuses the token."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin
        self._lock = threading.Lock()
        self._token = ""

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        token = self._token
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
            if response.status_code != 401:
                return
        with self._lock:
            if self._token == token:
                # Nobody else has asked meanwhile.
                self._token = self._ask()
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request

    def _ask(self) -> str:
        """Return a token. Raises CredentialsError."""
        command = str(self._plugin.command)
        try:
            answer = json.loads(self._run(command))
            status = answer["status"]
            token = status.get("token")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CredentialsError(f"{command} printed no credential") from error
        if not isinstance(token, str) or not token:
            raise CredentialsError(f"{command} gave no token; certificates of plugins are not supported")
        return token

    def _run(self, command: str) -> str:
        wanted = {
            "apiVersion": self._plugin.apiVersion,
            "kind": "ExecCredential",
            "spec": {"interactive": False},
        }
        own = {one.name: one.value for one in self._plugin.env or ()}
        try:
            done = subprocess.run(  # noqa: S603 - what the user's kubeconfig names
                [command, *(self._plugin.args or ())],
                env={**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(wanted)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=LIMIT_S,
                check=False,
            )
        except OSError as error:
            hint = shorten(self._plugin.installHint or "")
            said = f"{command}: {error.strerror or error}"
            raise CredentialsError(f"{said}; {hint}" if hint else said) from error
        except subprocess.TimeoutExpired as error:
            raise CredentialsError(f"{command} gave no answer within {LIMIT_S:.0f} s") from error
        if done.returncode:
            said = shorten(done.stderr) or "it said nothing"
            raise CredentialsError(f"{command} ended with exit code {done.returncode}: {said}")
        return done.stdout
