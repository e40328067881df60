"""The machine that numbers were taken on, in the words that a reader of a table needs."""

import argparse
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, str]:
    """Model, cores, memory, kernel and Python, with the load average of now."""
    return {
        "CPU": cpu_model(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory_bytes() / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        "load average at the start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def cpu_model() -> str:
    """The model as lscpu names it; what /proc/cpuinfo says where there is no lscpu."""
    try:
        text = subprocess.run(
            ["lscpu"], capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C"}
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        text = Path("/proc/cpuinfo").read_text()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip().lower() == "model name":
            return value.strip()
    return platform.processor() or "unknown"


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def publish(text: str, results: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Print the tables, and write them and every sample where ``--markdown`` and ``--json`` say."""
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")
