"""GPUs with their driver, and InfiniBand."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import compare
from drumline.contract.record import NamedTuple
from drumline.contract.words import format_count
from drumline.linux import cgroups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeReport


_GPU_FIELDS = (
    "index", "driver_version", "memory.used", "ecc.errors.uncorrected.volatile.total",
    "clocks_throttle_reasons.hw_slowdown", "clocks_throttle_reasons.hw_thermal_slowdown", "remapped_rows.pending",
)  # fmt: skip


class GpuFacts(NamedTuple):
    """The GPUs that nvidia-smi lists, with its names of fields; none where there is no such program."""

    program: str = ""
    gpus: Sequence[dict[str, str]] = ()
    error: str = ""


def gather_gpus(settings: Mapping[str, Any]) -> GpuFacts:
    import shutil

    program = shutil.which("nvidia-smi", path=settings.get("path"))
    if program is None:
        return GpuFacts()
    query = [program, "--query-gpu=" + ",".join(_GPU_FIELDS), "--format=csv,noheader,nounits"]
    done = subprocess.run(query, check=False, capture_output=True, text=True, errors="replace")  # noqa: S603 - no text of others
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        return GpuFacts(program, error=said[0] if said else f"exit code {done.returncode}")
    gpus = []
    for line in done.stdout.splitlines():
        values = [word.strip() for word in line.split(",")]
        if len(values) == len(_GPU_FIELDS):
            gpus.append(dict(zip(_GPU_FIELDS, values)))
    return GpuFacts(program, gpus)


class AdapterPort(NamedTuple):
    """A port of an InfiniBand or RoCE adapter. ``gids``: how many it has."""

    device: str
    port: str
    state: str
    rate: str
    link: str
    gids: int


class InfinibandFacts(NamedTuple):
    ports: list[AdapterPort]


def gather_infiniband(_: Mapping[str, Any], root: str = "/sys/class/infiniband") -> InfinibandFacts:
    """Return the ports of InfiniBand and RoCE adapters, active or not."""
    found = []
    for device in cgroups.list_folder(root):
        for port in cgroups.list_folder(os.path.join(root, device, "ports")):
            place = os.path.join(root, device, "ports", port)
            gids = [
                cgroups.read_text(os.path.join(place, "gids", one))
                for one in cgroups.list_folder(os.path.join(place, "gids"))
            ]
            found.append(
                AdapterPort(
                    device,
                    port,
                    state=cgroups.read_text(os.path.join(place, "state")).partition(":")[2].strip(),
                    rate=cgroups.read_text(os.path.join(place, "rate")),
                    link=cgroups.read_text(os.path.join(place, "link_layer")) or "InfiniBand",
                    gids=sum(bool(gid.replace(":", "").strip("0")) for gid in gids),
                )
            )
    return InfinibandFacts(found)


_GPU_MEMORY_MIB = 500
_ACTIVE = "ACTIVE"


def judge_gpus(node: NodeReport) -> Iterator[Finding]:
    facts = node.find("gpus", GpuFacts)
    if not facts:
        return
    gpus, wanted = facts.gpus, node.demand.gpus
    if facts.error:
        say = node.error if wanted else node.warning
        yield say(f"nvidia-smi fails: {facts.error}", "look at dmesg; restart the driver or the node")
    elif len(gpus) < wanted and facts.program:
        yield node.error(
            f"{format_count(len(gpus), 'GPU')} of the {wanted} that the job was given answer",
            "look for XID errors in dmesg, and restart the node",
        )
    else:
        yield node.ok(format_count(len(gpus), "GPU"))
    for gpu in gpus:
        for finding, remedy in _find_faults(gpu):
            yield node.warning(f"GPU {gpu['index']} {finding}", remedy)


def _find_faults(gpu: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a GPU, and what to do about it."""
    errors, used = (gpu[name] for name in ("ecc.errors.uncorrected.volatile.total", "memory.used"))
    hot, slow = (gpu[f"clocks_throttle_reasons.hw_{name}slowdown"] == "Active" for name in ("thermal_", ""))
    # Where there is no such figure, it is text.
    if errors.isdigit() and int(errors):
        what = f"has had {errors} memory errors that were not corrected"
        yield what, "restart the node, and replace the GPU if they come back"
    if gpu["remapped_rows.pending"].lower() in ("yes", "1"):
        yield "has rows of memory to remap", "reset the GPU or restart the node"
    if hot or slow:
        why = "it is too hot" if hot else "of its power or temperature"
        yield f"is slowed down because {why}", "look at its cooling and power supply"
    if used.isdigit() and int(used) > _GPU_MEMORY_MIB:
        what = f"has {used} MiB in use before the job starts"
        yield what, "end the process that holds it: nvidia-smi lists them"


def compare_drivers(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    def read(node: NodeReport) -> str:
        facts = node.find("gpus", GpuFacts)
        return ", ".join(dict.fromkeys(gpu["driver_version"] for gpu in facts.gpus)) if facts else ""

    remedy = "install the same driver on all nodes, with a fabric manager of the same version"
    return compare(nodes, read, "its NVIDIA driver is", remedy)


def list_ports(node: NodeReport) -> list[AdapterPort]:
    """Return the ports of a node's InfiniBand and RoCE adapters; none where they could not be had."""
    facts = node.find("infiniband", InfinibandFacts)
    return facts.ports if facts else []


def judge_infiniband(node: NodeReport) -> Iterator[Finding]:
    for port in list_ports(node):
        name = f"{port.device} port {port.port}"
        if port.state != _ACTIVE:
            yield node.warning(
                f"{name} is {port.state or 'in no state'}, not {_ACTIVE}",
                "check the cable, the switch and the subnet manager (ibstat)",
            )
        elif port.link == "Ethernet" and not port.gids:
            yield node.warning(f"{name} has no GID", "give its interface an address")


def compare_infiniband(nodes: Sequence[NodeReport]) -> Iterator[Finding]:
    def name_devices(node: NodeReport) -> str:
        names = ", ".join(port.device for port in list_ports(node))
        return names or ("none" if node.get("infiniband") else "")

    def name_rates(node: NodeReport) -> str:
        return ", ".join(port.rate for port in list_ports(node) if port.state == _ACTIVE)

    for what, read in (("devices", name_devices), ("rates", name_rates)):
        remedy = "set NCCL_IB_HCA by node, or make the adapters alike"
        yield from compare(nodes, read, f"its InfiniBand {what} are", remedy)
