"""The way of a notice to one receiver. Errors are told without the receiver's address, which is a secret."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_ATTEMPT_S = 5.0
_PAUSES_S = (0.5, 1.0, 2.0, 4.0)
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
"""Answers after which another attempt may succeed."""

_MOST_TEXT = 1500
"""Characters; Discord takes 2000."""


class NotSentError(Exception):
    """Raised if a notice cannot be sent; says why, in words that hold no secret."""


def make_text(notice: Mapping[str, Any]) -> tuple[str, str]:
    """Return the title and the text of a notice."""
    did = {
        "end": f"ended: {notice['status']}",
        "failure": "failed",
        "hang": "hangs",
        "preemption": "is preempted",
        "test": "is a test of notifications",
    }
    title = f"job {notice['job']} {did[notice['event']]}"
    warnings = [f"warning: {text}" for text in notice.get("warnings", ())]
    lines = [
        title,
        notice["reason"],
        *warnings,
        f"drumline job show -n {notice['job']}   (on {notice['host']})",
    ]
    if notice["event"] == "test":
        lines = [title]
    return title, "\n".join(filter(None, lines))[:_MOST_TEXT]


def send(receiver: Mapping[str, Any], notice: Mapping[str, Any], deadline: float) -> None:
    """Send the notice. ``deadline``: in monotonic seconds. Blocks until then at most. Raises NotSentError."""
    kind = receiver["kind"]
    if kind == "command":
        _run_command(str(receiver["command"]), notice, deadline)
    elif not receiver.get("url"):
        raise NotSentError("its address is not known here")
    elif kind == "webhook":
        _post(str(receiver["url"]), notice, deadline)
    else:
        _send_by_apprise(str(receiver["url"]), notice)


def _post(url: str, notice: Mapping[str, Any], deadline: float) -> None:
    text = make_text(notice)[1]
    fields = {
        name: notice[name] for name in ("event", "job", "status", "exit_code", "reason", "host", "time")
    }
    fields["warnings"] = notice.get("warnings", [])
    # Slack, Mattermost and Teams show "text", Discord "content".
    data = json.dumps({"text": text, "content": text, **fields}).encode()
    why = ""
    for pause_s in (*_PAUSES_S, 0.0):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        why, may_help = _post_once(url, data, min(left_s, _ATTEMPT_S))
        if not why:
            return
        if not may_help:
            break
        time.sleep(min(pause_s, max(0.0, deadline - time.monotonic())))
    raise NotSentError(why or "there was no time left")


def _post_once(url: str, data: bytes, timeout_s: float) -> tuple[str, bool]:
    """Return why it was not taken, empty if it was, and whether another attempt may help."""
    import http.client
    import urllib.error
    import urllib.request

    class RefuseRedirects(urllib.request.HTTPRedirectHandler):
        """The address is a secret between two parties."""

        def redirect_request(self, *_: Any) -> None:
            return None

    headers = {"Content-Type": "application/json", "User-Agent": "drumline"}
    try:
        request = urllib.request.Request(url, data, headers)  # noqa: S310 - checked when it was configured
        with urllib.request.build_opener(RefuseRedirects).open(request, timeout=timeout_s):
            return "", False
    except urllib.error.HTTPError as error:
        error.close()
        return f"the server answered {error.code} {error.reason}"[:200], error.code in _AGAIN
    except urllib.error.URLError as error:
        return _explain(error.reason), True
    except (OSError, http.client.HTTPException) as error:
        return _explain(error), True
    except ValueError:
        return "its address is no URL", False


def _explain(error: object) -> str:
    """Explain an error without its own text, where that may have the address in it."""
    if isinstance(error, TimeoutError):
        return "the server did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        return f"the server cannot be reached: {error.strerror}"
    return f"the server cannot be reached: {type(error).__name__}"


def _run_command(command: str, notice: Mapping[str, Any], deadline: float) -> None:
    names = ("event", "job", "status", "reason")
    told = {f"DRUMLINE_NOTICE_{name.upper()}": str(notice[name]) for name in names}
    told["DRUMLINE_NOTICE_TEXT"] = make_text(notice)[1]
    public = {name: value for name, value in notice.items() if name not in ("receivers", "folder")}
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command
            ["/bin/bash", "-c", command],
            stdin=subprocess.PIPE,
            text=True,
            cwd=os.path.expanduser("~"),
            env={**os.environ, **told},
            start_new_session=True,
        )
    except OSError as error:
        raise NotSentError(f"its command could not be started: {error.strerror}") from error
    try:
        process.communicate(json.dumps(public), timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise NotSentError("its command took too long, and was ended") from None
    if process.returncode:
        raise NotSentError(
            f"its command ended with code {process.returncode}; see notifications.log of the job"
        )


def _send_by_apprise(url: str, notice: Mapping[str, Any]) -> None:
    try:
        import apprise
    except ImportError as error:
        from drumline.contract import extras

        raise NotSentError(f"it needs the package apprise: {extras.install_line('notify')}") from error
    title, text = make_text(notice)
    kind = apprise.NotifyType.FAILURE if notice["event"] == "failure" else apprise.NotifyType.INFO
    # What it logs may have the address in it.
    logging.getLogger("apprise").disabled = True
    try:
        sender = apprise.Apprise()
        is_sent = sender.add(url) and sender.notify(
            title=title, body=text.partition("\n")[2] or title, notify_type=kind
        )
    except Exception as error:  # noqa: BLE001 - a plug-in of it may raise anything, with the address in it
        raise NotSentError(f"apprise failed with {type(error).__name__}") from None
    if not is_sent:
        raise NotSentError("apprise could not deliver it")
