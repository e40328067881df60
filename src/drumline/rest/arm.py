"""
Identifiers of Azure Resource Manager, and what one request is about.

Paths begin with a scope, ``/subscriptions/S/resourceGroups/R/providers/PROVIDER/workspaces/W``, behind the name of a
service but for the first. Subscription and group are the client's own words: they come back as they were, and mean
nothing here.

Source: https://learn.microsoft.com/rest/api/azureml/
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from drumline.contract import folder as homes
from drumline.contract.errors import UsageError
from drumline.contract.record import NamedTuple
from drumline.control.settings.workspaces import PROVIDER, arm_id, is_placeholder
from drumline.control.terminal import clean
from drumline.rest.resource_ids import remove_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_ARCHIVED = {"ActiveOnly": False, "ArchivedOnly": True, "All": None}
_SCOPE = re.compile(
    r"(?P<service>/[a-z]+/v[0-9.]+|)/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    rf"/providers/{re.escape(PROVIDER)}/workspaces/(?P<workspace>[^/]+)(?P<rest>/.*)?",
    re.IGNORECASE,
)


class Scope(NamedTuple):
    """The place of a request: the client's subscription and resource group, and the workspace."""

    subscription: str
    group: str
    workspace: str

    @property
    def path(self) -> str:
        return arm_id(self.workspace, subscription=self.subscription, group=self.group)

    def make_id(self, *parts: str) -> str:
        """
        >>> Scope("s", "g", "w").make_id("jobs", "calm_drum")[-28:]
        '/workspaces/w/jobs/calm_drum'
        """
        return "/".join((self.path, *parts))


def split_path(path: str) -> tuple[str, Scope, str] | None:
    """
    Return the service, the scope and the rest of a path; None: it has no workspace.

    >>> scope = "/subscriptions/s/resourceGroups/g/providers/Microsoft.MachineLearningServices/workspaces/w"
    >>> split_path(f"/history/v1.0{scope}/runs/a")
    ('/history', Scope(subscription='s', group='g', workspace='w'), '/runs/a')
    """
    known = _SCOPE.fullmatch(path)
    if known is None:
        return None
    service = known["service"].lower().rpartition("/")[0]
    return service, Scope(known["subscription"], known["group"], known["workspace"]), known["rest"] or ""


class Call(NamedTuple):
    """
    One request. ``address``: of the server, as the client reaches it. ``body``: its JSON; empty without one. ``key``:
    signs addresses of files.
    """

    scope: Scope
    address: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]
    key: bytes

    def name(self, key: str = "name") -> str:
        """Return a part of the path that is a name."""
        return remove_prefixes(self.path[key])

    def make_id(self, *parts: str) -> str:
        return self.scope.make_id(*parts)


class Reply(NamedTuple):
    """The answer of a handler whose status is not 200, or that has headers."""

    content: Any
    status: int = 200
    headers: Mapping[str, str] = {}


def page(items: Iterable[Any], call: Call, size: int = 100) -> dict[str, Any]:
    """Return one page of a list, with the address of the next; ``$skip`` and ``$top`` choose it."""
    start = to_number(call.query.get("$skip") or call.query.get("$skipToken") or "0")
    size = min(size, to_number(call.query.get("$top") or str(size)) or size)
    listed = list(items)
    found: dict[str, Any] = {"value": listed[start : start + size]}
    if len(listed) > start + size and "$top" not in call.query:
        query = {**call.query, "$skip": str(start + size)}
        words = "&".join(f"{quote(key, safe='$')}={quote(value, safe='')}" for key, value in query.items())
        found["nextLink"] = f"{call.address}{quote(call.scope.path + call.path['rest'])}?{words}"
    return found


def choose_archived(call: Call) -> bool | None:
    """Return which of a list are wanted: those that are archived, those that are not, or both with None."""
    return _ARCHIVED.get(call.query.get("listViewType", "ActiveOnly"), False)


def warn(text: str) -> None:
    """Say on the server's terminal what is wrong, as that a file cannot be read; the request goes on."""
    print(f"warning: {clean(text)}", file=sys.stderr)


def to_number(text: str) -> int:
    """Return a number of a query. Raises UsageError."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"{text[:20]!r} is no number of entries")
    return int(text)


def choose_workspace(name: str) -> str:
    """Return the workspace as ``folder.workspace`` takes it; a placeholder that was never filled in counts as none."""
    return homes.current_workspace() if not name or is_placeholder(name) else name
