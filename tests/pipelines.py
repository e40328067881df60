"""Pipelines for the tests: their files, steps that count their runs and wait for a word, and what became of them."""

import json
from pathlib import Path
from typing import Any

from cli_jobs import wait_for_status
from waiting import wait_until

from drumline.contract.folder import RunFolder
from drumline.contract.outcome import fold
from drumline.control.facts import description

FINAL = ("Completed", "Failed", "Canceled")


def write_pipeline(folder: Path, steps: dict[str, Any], name: str = "p", **fields: Any) -> Path:
    """A pipeline's file; JSON is YAML."""
    path = folder / f"{name}.yml"
    path.write_text(json.dumps({"type": "pipeline", "name": name, "jobs": steps, **fields}))
    return path


def step(command: str, *needs: str, **fields: Any) -> dict[str, Any]:
    """One that reads the output ``o`` of each of those, and writes one itself; told to end, it does so soon."""
    inputs = {need: "${{parent.jobs." + need + ".outputs.o}}" for need in needs}
    return {
        "command": command,
        "inputs": {**inputs, **fields.pop("inputs", {})},
        "outputs": {"o": None},
        "drumline": {"grace": 0.5},
        **fields,
    }


def waits_for(file: Path) -> str:
    """A command line that ends when there is that file."""
    return f"until test -e '{file}'; do sleep 0.02; done"


def counts(file: Path, then: str = "true") -> str:
    """A command line that adds a line to that file first."""
    return f"echo ran >> '{file}'; {then}"


def runs(file: Path) -> int:
    """How often a step of ``counts`` has run."""
    return file.read_text().count("ran") if file.exists() else 0


def wait_for_end(name: str = "p") -> dict[str, Any]:
    return wait_for_status(name, *FINAL)


def wait_for_step(wanted: str, name: str = "p", status: str = "Running") -> str:
    """Its job, once it has that status. The pipeline itself may be a step that has not begun."""

    def job() -> str:
        if not RunFolder.for_job(name).exists():
            return ""
        found = [one for one in description.show_job(name)["steps"] if one["step"] == wanted]
        return str(found[0]["job"]) if found and found[0]["status"] == status else ""

    return wait_until(job, 20.0, f"step {wanted} to be {status}")


def steps_of(name: str, *columns: str) -> dict[str, Any]:
    """By step those columns; the value alone of one."""
    columns = columns or ("status",)
    return {
        one["step"]: one[columns[0]] if len(columns) == 1 else tuple(one[column] for column in columns)
        for one in description.show_job(name)["steps"]
    }


def reused(name: str) -> set[str]:
    return {step for step, is_reused in steps_of(name, "reused").items() if is_reused}


def log_of(name: str) -> str:
    """What the only rank of a job has printed."""
    return (Path(RunFolder.for_job(name).user_logs) / "std_log.txt").read_text()


def driver_of(name: str) -> int:
    """The process that drives it now."""
    folder = RunFolder.for_job(name)
    return int(wait_until(lambda: folder.read_json(folder.supervisor), what=f"the driver of {name}")["pid"])


def guard_of(driver: int) -> int:
    """Its parent. Raises LookupError for a driver that has lost its guard, and OSError for one that is gone."""
    parent = int(Path(f"/proc/{driver}/stat").read_text().rpartition(")")[2].split()[1])
    if Path(f"/proc/{parent}/comm").read_text().strip() != "drumline-guard":
        raise LookupError(f"process {parent} is no guard")
    return parent


def started(name: str) -> list[tuple[str, str]]:
    """Of every step that was started: itself and its job, once for each time."""
    folder = RunFolder.for_job(name)
    return [
        (event.step, event.job) for event in folder.read_events() if type(event).__name__ == "StepStarted"
    ]


def is_over(name: str) -> bool:
    """By its events alone, without a look that would change anything."""
    return fold(RunFolder.for_job(name).read_events()).is_final
