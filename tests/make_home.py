"""
Make a home with one job of each kind, for later versions to read: ``python tests/make_home.py tests/homes/0.1``.

Paths, names and addresses of the machine are replaced by those of nobody's: ``HOME`` and ``PYTHON`` below.
"""

import getpass
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

HOME = "/home/ada/.local/share/drumline"
"""What stands for the home; a test puts its own in its place."""

PYTHON = "/home/ada/venv/bin/python"
LEFT_OUT = (
    "snapshots", "snapshot-index", "index.sqlite*", "reuse", "cache", "warm", "engines", "*.lock", "code",
    "tags", "scratch",
)  # fmt: skip
"""What is rebuilt, and what no test reads."""

TRAIN = """
import os, signal, sys, time
from drumline.v1 import Run

rank, attempt = os.environ["RANK"], os.environ["DRUMLINE_ATTEMPT"]
mode, rate = sys.argv[1], float(sys.argv[2])
for step in range(3):
    print(f"step {step} of rank {rank}", flush=True)
    if rank == "0":
        Run.get_context().log("loss", rate / (step + 1))
if mode == "fail" and rank == "1":
    raise ValueError("loss is nan at step 3")
if mode == "wait" and attempt == "0":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print("ready", flush=True)
    signal.pause()
if len(sys.argv) > 3:
    open(os.path.join(sys.argv[3], "model.txt"), "w").write(f"{rate}\\n")
"""


def drumline(home: Path, cwd: Path, *words: str, check: bool = True) -> str:
    variables = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(cwd),
        "USER": "ada",
        "DRUMLINE_HOME": str(home),
        "DRUMLINE_WARM": "off",
        "DRUMLINE_CONTAINER": "none",
    }
    done = subprocess.run(
        [sys.executable, "-m", "drumline", *words], cwd=cwd, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


def make_jobs(home: Path, folder: Path) -> None:
    """Run one job of each kind to its end."""
    (folder / "src").mkdir()
    (folder / "src" / "train.py").write_text(textwrap.dedent(TRAIN).lstrip())
    pytorch = {"distribution": {"type": "pytorch", "process_count_per_instance": 2}, "code": "src"}

    def create(name: str, fields: dict[str, object], *more: str, check: bool = True) -> None:
        (folder / f"{name}.yml").write_text(json.dumps({"name": name, "experiment_name": "old", **fields}))
        drumline(home, folder, "job", "create", "-f", f"{name}.yml", *more, check=check)

    def command(mode: str, rate: str = "0.5", output: str = "") -> str:
        return f"python train.py {mode} {rate} {output}".strip()

    output = {"outputs": {"model": {"type": "uri_folder"}}}
    written = "${{outputs.model}}"
    two = {**pytorch, "resources": {"instance_count": 2}}
    create("completed", {"command": command("end", output=written), **two, **output}, "--stream")
    create("failed", {"command": command("fail"), **pytorch}, "--stream", check=False)
    create("preempted", {"command": command("wait"), **pytorch})
    while "ready" not in "".join(path.read_text() for path in home.glob("jobs/preempted/user_logs/*")):
        time.sleep(0.05)
    drumline(home, folder, "job", "preempt", "-n", "preempted")
    drumline(home, folder, "job", "stream", "-n", "preempted")
    one = {**pytorch, "distribution": {"type": "pytorch", "process_count_per_instance": 1}}
    train = {"type": "command", "command": command("end", output=written), **one, **output}
    use = {
        "type": "command",
        "command": "cat ${{inputs.model}}/model.txt",
        "inputs": {"model": "${{parent.jobs.train.outputs.model}}"},
    }
    create("pipeline", {"type": "pipeline", "jobs": {"train": train, "use": use}}, "--stream")
    trial = {"command": command("end", "${{search_space.lr}}"), **one}
    sweep = {
        "trial": trial,
        "search_space": {"lr": {"type": "choice", "values": [0.1, 0.2]}},
        "sampling_algorithm": "grid",
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 2, "max_concurrent_trials": 1},
    }
    create("sweep", {"type": "sweep", **sweep}, "--stream")


def scrub(target: Path, home: Path, folder: Path) -> None:
    """Replace what tells of the machine, and make the modes those of git."""
    root = Path(__file__).parents[1]
    host = socket.gethostname()
    replaced = [
        (str(home), HOME),
        (str(folder), "/home/ada/project"),
        (sys.executable, PYTHON),
        (str(Path(sys.executable).parent), str(Path(PYTHON).parent)),
        (sys.prefix, str(Path(PYTHON).parents[1])),
        (sys.base_prefix, "/usr"),
        (str(root), "/home/ada/drumline"),
        (str(Path.home()), "/home/ada"),
        (host, "lab"),
        (f'"{getpass.getuser()}"', '"ada"'),
    ]
    for path in sorted(target.rglob("*")):
        if path.is_symlink():
            link = os.readlink(path)
            path.unlink()
            path.symlink_to(link.replace(str(home), HOME))
        elif path.is_dir():
            path.chmod(0o755)
        else:
            text = path.read_text()
            for old, new in replaced:
                text = text.replace(old, new)
            # The identity of this boot and of this machine.
            text = re.sub(
                r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "0" * 8 + "-0000" * 3 + "-" + "0" * 12, text
            )
            text = re.sub(r"\b[0-9a-f]{32}/\d+", "0" * 32 + "/1", text)
            path.chmod(0o644)
            path.write_text(text)


def main() -> None:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        home, folder = Path(one) / "home", Path(two)
        make_jobs(home, folder)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(home, target, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        scrub(target, home, folder)


if __name__ == "__main__":
    main()
