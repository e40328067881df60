"""The tables of a compute: a Slurm cluster, Kubernetes, this machine, or what Azure calls an amlcompute."""

from __future__ import annotations

import re

from drumline.contract.sbatch import OURS, USERS
from drumline.spec import fields
from drumline.spec.kinds.records import Record
from drumline.spec.kinds.values import (
    Flag,
    Integer,
    Kind,
    ListOf,
    MapOf,
    Number,
    OneOf,
    Text,
    quote_node,
    to_kinds,
)
from drumline.spec.reading.tree import Mapping, Scalar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from drumline.spec.kinds.report import Report
    from drumline.spec.kinds.schemas import Schemas
    from drumline.spec.reading.tree import Node

NAME = r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}"
"""Of a compute; it is a file's name too. Azure's are 2 to 32 letters, digits and ``-``."""

RESERVED = ("local", "serverless")
"""What a job's ``compute`` may say without one being attached."""

_CONTROL = r"[\x00-\x1f\x7f\x85\u2028\u2029]"
_MOST_NICE = 2147483645  # Slurm's own


class Line(Text):
    """One line of text, for it becomes part of a batch script; ``pattern`` is of all of it."""

    def __init__(self, pattern: str = ".*", word: str = "text", hint: str = "") -> None:
        super().__init__()
        self.pattern = pattern
        self.said = word
        self.hint = hint

    def take(self, node: Node, path: str, report: Report) -> Any:
        is_text = isinstance(node, Scalar) and isinstance(node.value, str)
        if self.hint and not is_text:
            report.add(f"{path} must be {self.said}, got {quote_node(node)}", node, path, self.hint)
            return None
        value = super().take(node, path, report)
        if not isinstance(value, str):
            return None
        if re.search(_CONTROL, value):
            report.add(f"{path} must be one line without control characters", node, path)
            return None
        if not re.fullmatch(self.pattern, value):
            report.add(f"{path} must be {self.said}, got {quote_node(node)}", node, path, self.hint)
            return None
        return value

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^(?:{self.pattern})$"}


class ScriptText(Text):
    """Lines of a shell."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if isinstance(value, str) and re.search(r"[\x00-\x08\x0b-\x1f\x7f]", value):
            report.add(f"{path} may hold no control characters but tabs and line ends", node, path)
            return None
        return value


class Count(Integer):
    def __init__(self, least: int, most: int = 1 << 31) -> None:
        super().__init__()
        self.least = least
        self.most = most
        self.word = f"a whole number, {least} or more"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if value is not None and not self.least <= value <= self.most:
            self.refuse(node, path, report)
            return None
        return value

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {**super().json_schema(schemas), "minimum": self.least, "maximum": self.most}


class TimeLimit(Kind):
    """A time as ``sbatch --time`` reads it, kept as text: YAML makes a number of base 60 of ``1:30:00``."""

    word = "a time of Slurm: minutes, 'HH:MM:SS' or 'D-HH:MM:SS'"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = node.value if isinstance(node, Scalar) else None
        text = node.text if isinstance(node, Scalar) else ""
        is_plain = isinstance(value, (str, int)) and not isinstance(value, bool)
        text = value if isinstance(value, str) else text
        if is_plain and re.fullmatch(r"\d+-\d+(:\d+){0,2}|\d+(:\d+){0,2}", text) and re.search("[1-9]", text):
            assert isinstance(node, Scalar)
            node.surprise = ""
            return text
        self.refuse(node, path, report)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": ["string", "integer"]}


class SbatchOption(Line):
    """``--name`` or ``--name=value``, of those that are the user's to choose."""

    def __init__(self) -> None:
        super().__init__()

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if value is None:
            return None
        what, hint = refusal_of(value)
        if what:
            report.add(f"{path}: {what}", node, path, hint)
            return None
        return value


_FIELDS = {
    "requeue": "use `requeue: true`",
    "no-requeue": "use `requeue: false`",
    "partition": "use `partition:`",
    "account": "use `account:`",
    "qos": "use `qos:`",
    "time": "use `time_limit:`",
    "nice": "use `priorities:`",
}
_OURS = {**OURS, **_FIELDS, "clusters": "one compute is one cluster; `slurm_conf` says which"}
_LETTERS = {
    "N": "nodes", "n": "ntasks", "J": "job-name", "o": "output", "e": "error", "i": "input", "a": "array",
    "D": "chdir", "M": "clusters", "p": "partition", "A": "account", "q": "qos", "t": "time", "W": "wait",
    "Q": "quiet", "h": "help", "V": "version", "C": "constraint", "w": "nodelist", "x": "exclude", "G": "gpus",
    "c": "cpus-per-task", "d": "dependency", "L": "licenses", "F": "nodefile", "H": "hold", "k": "no-kill",
}  # fmt: skip


def refusal_of(option: str) -> tuple[str, str]:
    """Return why an option of sbatch cannot be, and what to do; two empty texts for one that can."""
    found = re.fullmatch(r"--([a-z][a-z0-9-]*)(=.*)?", option)
    if found is None:
        return _misspelt(option)
    name = found[1]
    # sbatch takes an option by its beginning too.
    begun = next((one for one in _OURS if one.startswith(name)), "") if name not in USERS else ""
    ours = name if name in _OURS else begun
    if ours:
        return f"--{ours} is set by Drumline", _OURS[ours]
    if name in USERS:
        return "", ""
    import difflib

    close = difflib.get_close_matches(name, USERS, n=1)
    return (
        f"sbatch has no option --{name}",
        f"did you mean --{close[0]}?" if close else "long names, written out",
    )


def _misspelt(option: str) -> tuple[str, str]:
    letter = re.fullmatch(r"-([A-Za-z])(.*)", option)
    if letter:
        name = _LETTERS.get(letter[1], "NAME")
        value = letter[2].strip().removeprefix("=")
        long = f"--{name}" + (f"={value}" if value else "")
        what, hint = refusal_of(long) if name != "NAME" else ("", "")
        return (what, hint) if what else (f"{option!r} is short", f"write it long: {long}")
    parted = re.fullmatch(r"(--[a-z][a-z0-9-]*)\s+(.+)", option)
    if parted:
        return f"{option!r} is two words", f"write it as one: {parted[1]}={parted[2]}"
    return f"{option!r} is not an option of sbatch", "write it as --NAME or --NAME=VALUE"


_WORD = Line(r"[^\s\"'`$\\;&|<>#-][^\s\"'`$\\;&|<>#]*", "one word, without quotes or '$'")
_PATH = Line(r"/[^\"'`$\\]*", "an absolute path, without quotes or '$'")
_SCRATCH = Line(
    r"/([^\"'`$\\]|\$(USER|SLURM_JOB_ID)\b|\$\{(USER|SLURM_JOB_ID)\})*",
    "an absolute path, in which only $USER and $SLURM_JOB_ID are filled in",
)
_MEMORY = Line(r"[1-9][0-9]*[KMGT]", "a size with its unit K, M, G or T", "write 64 GB as 64G")
_INTERFACE = Line(r"[A-Za-z0-9][\w.@:-]{0,14}", "the name of one network interface", "ip link shows them")
_NAME = Line(NAME, "letters, digits, '-' and '_', beginning with a letter or digit, 64 at most")
_ANY_TEXT = Text()
_OPTIONS = ListOf(SbatchOption())

_READ_ONLY = (
    "$schema",
    "id",
    "created_on",
    "provisioning_state",
    "provisioning_errors",
    "resource_id",
    "location",
    "reason",
    "slurm",
    "local",
)
"""What ``compute show`` prints beside the settings, and Azure's; so what it shows can be attached again."""

_EVERY: dict[str, Kind] = {"name": _NAME, "description": ScriptText(), "tags": MapOf(Text(nullable=True))}

_SHAPE: dict[str, Kind] = {
    "partition": _WORD,
    "gpus_per_node": Count(0),
    "cores_per_node": Count(0),
    "memory_per_node": _MEMORY,
    "sbatch_options": _OPTIONS,
}
_PRIORITY = Record("priorities", {"qos": _WORD, "partition": _WORD, "nice": Count(-_MOST_NICE, _MOST_NICE)})

SLURM = Record(
    "a slurm compute",
    {
        "type": OneOf("slurm"),
        **_EVERY,
        **_SHAPE,
        "account": _WORD,
        "qos": _WORD,
        "tier": to_kinds(fields.AMLCOMPUTE)["tier"],
        "spot_partition": _WORD,
        "spot_qos": _WORD,
        "folder": _PATH,
        "scratch": _SCRATCH,
        "python": _PATH,
        "setup": ScriptText(),
        "max_instances": Count(1),
        "interface": _INTERFACE,
        "nccl_topo_file": _PATH,
        "instance_types": MapOf(Record("instance_types", _SHAPE)),
        "priorities": Record("priorities", dict.fromkeys(("low", "medium", "high"), _PRIORITY)),
        "requeue": Flag(),
        "time_limit": TimeLimit(),
        "slurm_conf": _PATH,
    },
    required=("name", "type"),
    ignored=_READ_ONLY,
)


class Amount(Number):
    """A number above 0."""

    word = "a number above 0"

    def take(self, node: Node, path: str, report: Report) -> Any:
        value = super().take(node, path, report)
        if value is not None and value <= 0:
            self.refuse(node, path, report)
            return None
        return value

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": ["number", "string"]}


class NodesOfOneMachine(Record):
    """A local compute. What each node has can be said of isolated nodes alone."""

    def take(self, node: Node, path: str, report: Report) -> Any:
        values = super().take(node, path, report)
        if isinstance(node, Mapping) and "isolation" not in node:
            for key, key_node, _ in node:
                if key in ISOLATED:
                    report.add(f"{key} needs isolated nodes", key_node, str(key), "add isolation: namespace")
        return values


_NUMBER = r"(?=[^1-9]*[1-9])[0-9]{1,12}(\.[0-9]{1,6})?"
_SIZE = Line(rf"{_NUMBER} ?[kKmMgGtT]i?[bB]?", "a size with its unit k, m, g or t", "write 2 GB as 2g")
_LINK = Record(
    "link",
    {
        "rate": Line(
            rf"{_NUMBER} ?[kKmMgG]?[bB][iI][tT]", "a rate with its unit", "such as 1gbit or 100mbit"
        ),
        "latency": Line(rf"{_NUMBER} ?([uU]|[mM])?[sS]", "a time with its unit", "such as 5ms or 200us"),
        "loss": Line(
            r"(?=[^1-9]*[1-9])0*[0-9]{1,2}(\.[0-9]{1,6})? ?%",
            "a part of all packets, less than 100%",
            "such as 1%",
        ),
    },
)
_NODE: dict[str, Kind] = {
    "cpus": Amount(),
    "memory": _SIZE,
    "shm_size": _SIZE,
    "tmp_size": _SIZE,
    "link": _LINK,
    "silence": Line(r"([2-9]|[1-9][0-9]{1,2}) ?[sS]", "whole seconds, 2s to 999s", "such as 10s"),
}
ISOLATED = tuple(_NODE)
"""What isolated nodes alone have."""

_MOST_NODES = 250
"""Of the network of isolated nodes."""

LOCAL = NodesOfOneMachine(
    "a local compute",
    {
        "type": OneOf("local"),
        **_EVERY,
        "size": _ANY_TEXT,
        "nodes": Count(1, _MOST_NODES),
        "isolation": OneOf("namespace"),
        **_NODE,
    },
    required=("name", "type"),
    ignored=_READ_ONLY,
)

_ADDRESSES = ("$schema", "public_ip_address", "private_ip_address")
_IDENTITY = Record(
    "identity",
    to_kinds(fields.AMLCOMPUTE_IDENTITY),
    ignored=("$schema", "principal_id", "tenant_id"),
)


AMLCOMPUTE = Record(
    "an amlcompute",
    {
        "type": OneOf("amlcompute"),
        **_EVERY,
        **to_kinds(fields.AMLCOMPUTE),
        "ssh_settings": Record("ssh_settings", to_kinds(fields.AMLCOMPUTE_SSH)),
        "network_settings": Record(
            "network_settings", to_kinds(fields.AMLCOMPUTE_NETWORK), ignored=_ADDRESSES
        ),
        "identity": _IDENTITY,
    },
    required=("name", "type"),
    ignored=_READ_ONLY,
)
"""Numbers may be any, as for Azure's client; which cannot be shows once it stands for a cluster."""

_OBJECT = Line(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "lower-case letters, digits, '-' and '.'")
_NAMESPACE = Line(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "lower-case letters, digits and '-', 63 at most")
_RESOURCE = Line(r"[A-Za-z0-9./_-]+", "the name of a resource", "such as nvidia.com/gpu, or nvidia or amd")
_MOUNT = Line(r"/[^\"'`$\\:]*", "an absolute path, without quotes, ':' or '$'")


class Quantity(Kind):
    """An amount of a resource, kept as text."""

    word = "a whole number above 0, or a size such as 64Gi"

    def take(self, node: Node, path: str, report: Report) -> Any:
        text = str(node.value) if isinstance(node, Scalar) else ""
        if re.fullmatch(r"[1-9][0-9]*([kMGT]|[KMGT]i)?", text):
            return text
        self.refuse(node, path, report)
        return None

    def json_schema(self, schemas: Schemas) -> dict[str, Any]:
        return {"type": ["string", "integer"]}


TOLERATION = Record(
    "tolerations",
    {
        "key": Line(r"[A-Za-z0-9./_-]+", "the key of a taint", "such as nvidia.com/gpu"),
        "operator": OneOf("Exists", "Equal", fold=str),
        "value": Text(),
        "effect": OneOf("NoSchedule", "PreferNoSchedule", "NoExecute", fold=str),
        "tolerationSeconds": Count(0),
    },
)

VOLUME = Record(
    "volumes",
    {"claim": _OBJECT, "path": _MOUNT, "read_only": Flag()},
    required=("claim", "path"),
)

KUBERNETES = Record(
    "a kubernetes compute",
    {
        "type": OneOf("kubernetes"),
        **_EVERY,
        "kubeconfig": _PATH,
        "context": Line(r"[^\"'`$\\]+", "the name of a context", "kubectl config get-contexts shows them"),
        "namespace": _NAMESPACE,
        "image": Line(r"[^\s\"'`$\\]+", "the name of an image", "such as python:3.12-slim"),
        "python": Line(
            r"[A-Za-z0-9._+-]+|/[^\"'`$\\]*", "a program's name or absolute path", "such as python3"
        ),
        "cores_per_node": Count(1),
        "memory_per_node": _MEMORY,
        "shm_size": _MEMORY,
        "gpus_per_node": Count(0),
        "gpu_resource": _RESOURCE,
        "max_instances": Count(1),
        "queue": _OBJECT,
        "gang_timeout": Count(1),
        "priority_class": _OBJECT,
        "node_selector": MapOf(Text()),
        "tolerations": ListOf(TOLERATION),
        "resources": MapOf(Quantity()),
        "annotations": MapOf(Text()),
        "spread": OneOf("prefer", "require", "none"),
        "host_network": Flag(),
        "scheduler": _OBJECT,
        "runtime_class": _OBJECT,
        "gang": OneOf("kueue", "volcano", "coscheduling", "own"),
        "image_pull_secrets": ListOf(_OBJECT),
        "volumes": ListOf(VOLUME),
        "properties": Record("Azure's properties", {}, unknown="keep"),
        "identity": _IDENTITY,
    },
    required=("name", "type"),
    ignored=(*_READ_ONLY, "kubernetes"),
)

RECORDS = {"slurm": SLURM, "local": LOCAL, "kubernetes": KUBERNETES, "amlcompute": AMLCOMPUTE}
