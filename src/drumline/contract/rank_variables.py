"""
The variables that the processes of a job start with: those of its plan, with late-bound names replaced by facts.

What all nodes share is bound once, and not for each rank: a list of all nodes is long where there are many ranks.
"""

from __future__ import annotations

from collections import ChainMap
from typing import TYPE_CHECKING, Any

from drumline.contract.plan import bind

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

    from drumline.contract.plan import NodeTask, Plan, RankTask

_NODE_NAMES = ("${interface}", "${ib_devices}", "${ucx_devices}")
"""Names that have another value on each node."""

_MAY_BE_EMPTY = ("${ib_devices}", "${ucx_devices}")

_NONE: Mapping[str, str] = {}

BEFORE = "DRUMLINE_BEFORE_"
"""Begins the name of a variable with the value that another had before ``drumline azure env`` set it; empty: none."""

TRUST = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Variables that name a file of authorities, which ``drumline azure env`` sets."""


def restore_trust(environ: MutableMapping[str, str]) -> None:
    """Name the authorities of before again: containers and other machines have no file of this user's server."""
    for name in TRUST:
        before = environ.pop(BEFORE + name, None)
        folder, _, file = environ.get(name, "").rpartition("/")
        if before is None or not (folder.endswith("/azure") and file.startswith("ca-bundle-")):
            continue  # Somebody has named others since.
        if before:
            environ[name] = before
        else:
            environ.pop(name, None)


class RankVariables:
    """
    The variables of a job's processes. ``facts``: what is known of all nodes, by late-bound name.

    ``own``, in its methods: the facts that are another on each node.
    """

    def __init__(self, plan: Plan, facts: Mapping[str, str]) -> None:
        """Raises KeyError as ``bind``."""
        self._plan = plan
        self.texts = {f"text:{name}": bind(text, facts) for name, text in plan.texts.items()}
        self._references = {name: f"${{{name}}}" for name in self.texts}
        self._facts = _chain(self.texts, facts)
        differing = {
            name: value for name, value in plan.env.items() if any(one in value for one in _NODE_NAMES)
        }
        self._differing = differing
        same = {name: value for name, value in plan.env.items() if name not in differing}
        self.common = _bind_all(same, self._facts)
        """The variables that are the same on all nodes."""

    def of_node(self, node: NodeTask, own: Mapping[str, str] = _NONE) -> dict[str, str]:
        """Return the variables of a node besides ``common``. Raises KeyError as ``bind``."""
        facts = _chain(own, self._facts)
        return {**_bind_all(self._differing, facts), **_bind_all(node.env, facts)}

    def of_task(self, task: RankTask, own: Mapping[str, str] = _NONE) -> dict[str, str]:
        """Return the variables of a rank besides its node's, in which texts are still references."""
        return _bind_all(task.env, _chain(self._references, own, self._facts))

    def of_rank(self, node: NodeTask, task: RankTask, own: Mapping[str, str] = _NONE) -> dict[str, str]:
        """Return the variables that a rank starts with, on top of those it inherits. Raises KeyError as ``bind``."""
        env = _bind_all(task.env, _chain(own, self._facts))
        return {**self.common, **self.of_node(node, own), **env, **self._plan.user_env}


def _chain(*maps: Any) -> Mapping[str, str]:
    return ChainMap(*maps)


def _bind_all(variables: Mapping[str, str], facts: Mapping[str, str]) -> dict[str, str]:
    bound = {name: bind(value, facts) for name, value in variables.items()}
    return {name: value for name, value in bound.items() if value or variables[name] not in _MAY_BE_EMPTY}
