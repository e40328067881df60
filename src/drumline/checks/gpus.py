"""GPUs with their driver, and InfiniBand."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

from drumline.checks.findings import count_noun, error, find_odd, list_nodes, ok, warning
from drumline.linux import kernel_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from drumline.checks.findings import Finding, NodeDemand, NodeReport

    Nodes = Sequence[NodeReport]
    Demands = Sequence[NodeDemand]


_GPU_FIELDS = (
    "index", "name", "driver_version", "memory.total", "memory.used", "ecc.errors.uncorrected.volatile.total",
    "clocks_throttle_reasons.hw_slowdown", "clocks_throttle_reasons.hw_thermal_slowdown", "remapped_rows.pending",
)  # fmt: skip


def gather_gpus(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the GPUs that nvidia-smi lists; none where there is no such program."""
    import shutil

    program = shutil.which("nvidia-smi", path=settings.get("path"))
    if program is None:
        return {"program": "", "gpus": []}
    query = [program, "--query-gpu=" + ",".join(_GPU_FIELDS), "--format=csv,noheader,nounits"]
    done = subprocess.run(query, check=False, capture_output=True, text=True, errors="replace")  # noqa: S603 - no text of others
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()
        return {"program": program, "gpus": [], "error": said[0] if said else f"exit code {done.returncode}"}
    gpus = []
    for line in done.stdout.splitlines():
        values = [word.strip() for word in line.split(",")]
        if len(values) == len(_GPU_FIELDS):
            gpus.append(dict(zip(_GPU_FIELDS, values)))
    return {"program": program, "gpus": gpus}


def gather_infiniband(_: Mapping[str, Any], root: str = "/sys/class/infiniband") -> dict[str, Any]:
    """Return the ports of InfiniBand and RoCE adapters, active or not."""
    found = []
    for device in kernel_files.list_folder(root):
        for port in kernel_files.list_folder(os.path.join(root, device, "ports")):
            place = os.path.join(root, device, "ports", port)
            gids = [
                kernel_files.read_text(os.path.join(place, "gids", one))
                for one in kernel_files.list_folder(os.path.join(place, "gids"))
            ]
            found.append(
                {
                    "device": device,
                    "port": port,
                    "state": kernel_files.read_text(os.path.join(place, "state")).partition(":")[2].strip(),
                    "rate": kernel_files.read_text(os.path.join(place, "rate")),
                    "link": kernel_files.read_text(os.path.join(place, "link_layer")) or "InfiniBand",
                    "gids": sum(bool(gid.replace(":", "").strip("0")) for gid in gids),
                }
            )
    return {"ports": found}


_GPU_MEMORY_MIB = 500
_ACTIVE = "ACTIVE"


def judge_gpus(reports: Nodes, demands: Demands) -> Iterator[Finding]:
    for one, demand in zip(reports, demands):
        facts = one.get("gpus")
        if not facts:
            continue
        found = facts["gpus"]
        if facts.get("error"):
            yield _grade(demand.gpus)(
                one.node,
                f"nvidia-smi fails: {facts['error']}",
                "look at dmesg; restart the driver or the node",
            )
        elif len(found) < demand.gpus and facts["program"]:
            yield error(
                one.node,
                f"{count_noun(len(found), 'GPU')} of the {demand.gpus} that the job was given answer",
                "look for XID errors in dmesg, and restart the node",
            )
        else:
            yield ok(count_noun(len(found), "GPU"), one.node)
        for gpu in found:
            yield from _judge_gpu(one, gpu)


def _grade(wanted: int) -> Any:
    return error if wanted else warning


def _judge_gpu(one: NodeReport, gpu: Mapping[str, str]) -> Iterator[Finding]:
    name = f"GPU {gpu['index']}"
    errors = _number(gpu["ecc.errors.uncorrected.volatile.total"])
    if errors:
        yield warning(
            one.node,
            f"{name} has had {errors} memory errors that were not corrected",
            "restart the node, and replace the GPU if they come back",
        )
    if gpu["remapped_rows.pending"].lower() in ("yes", "1"):
        yield warning(one.node, f"{name} has rows of memory to remap", "reset the GPU or restart the node")
    slow = (gpu["clocks_throttle_reasons.hw_slowdown"], gpu["clocks_throttle_reasons.hw_thermal_slowdown"])
    if "Active" in slow:
        why = "it is too hot" if slow[1] == "Active" else "of its power or temperature"
        yield warning(
            one.node, f"{name} is slowed down because {why}", "look at its cooling and power supply"
        )
    used = _number(gpu["memory.used"])
    if used > _GPU_MEMORY_MIB:
        yield warning(
            one.node,
            f"{name} has {used} MiB in use before the job starts",
            "end the process that holds it: nvidia-smi lists them",
        )


def judge_infiniband(reports: Nodes, _: Demands) -> Iterator[Finding]:
    for one in reports:
        for port in one.get("infiniband").get("ports", ()):
            name = f"{port['device']} port {port['port']}"
            if port["state"] != _ACTIVE:
                yield warning(
                    one.node,
                    f"{name} is {port['state'] or 'in no state'}, not {_ACTIVE}",
                    "check the cable, the switch and the subnet manager (ibstat)",
                )
            elif port["link"] == "Ethernet" and not port["gids"]:
                yield warning(one.node, f"{name} has no GID", "give its interface an address")
    for what, read in (("devices", _name_devices), ("rates", _name_rates)):
        for one, own, usual, others in find_odd(reports, read):
            yield warning(
                one.node,
                f"its InfiniBand {what} are {own}, and {usual} on {list_nodes(others)}",
                "set NCCL_IB_HCA by node, or make the adapters alike",
            )


def _name_devices(one: NodeReport) -> str:
    facts = one.get("infiniband")
    return ", ".join(port["device"] for port in facts["ports"]) or "none" if facts else ""


def _name_rates(one: NodeReport) -> str:
    ports = one.get("infiniband").get("ports", ())
    return ", ".join(port["rate"] for port in ports if port["state"] == _ACTIVE)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return 0


def judge_drivers(reports: Nodes, _: Demands) -> Iterator[Finding]:
    def read(one: NodeReport) -> str:
        found = one.get("gpus").get("gpus", ())
        return ", ".join(dict.fromkeys(gpu["driver_version"] for gpu in found))

    for one, own, usual, others in find_odd(reports, read):
        yield warning(
            one.node,
            f"its NVIDIA driver is {own}, and {usual} on {list_nodes(others)}",
            "install the same driver on all nodes, with a fabric manager of the same version",
        )
