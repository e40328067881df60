"""Jobs of every kind for the pages of the studio to show, run for real."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import yaml
from waiting import wait_until

SIZE = {"resources": {"instance_count": 2}}
TORCH = {"distribution": {"type": "pytorch", "process_count_per_instance": 2}}

TRAIN = """
import argparse
import os
import time

from drumline.v1 import Run

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--bad-step", type=int, default=-1)
parser.add_argument("--steps", type=int, default=30)
parser.add_argument("--pause", type=float, default=0.03)
parser.add_argument("--work", type=float, default=0.0)
given = parser.parse_args()
rank = int(os.environ.get("RANK", "0"))
run = Run.get_context()
for step in range(given.steps):
    loss = 2 / (1 + given.lr * (step + 1)) + 0.01 * rank
    run.log("loss", loss)
    print(f"step {step} loss {loss:.4f}", flush=True)
    if rank == 2 and step == given.bad_step:
        raise ValueError(f"loss is nan at step {step}")
    end = time.process_time() + given.work * (4 if rank == 5 else 1 + step % 3)
    while time.process_time() < end:
        pass
    time.sleep(given.pause)
if given.bad_step >= 0:
    time.sleep(60)
if rank == 0:
    with open("outputs/model.txt", "w") as file:
        file.write("the weights")
"""

HOSTILE = """
import sys

print("<img src=x onerror=\\"document.title='taken'\\"><script>document.title='taken'</script>")
print("\\x1b]0;taken\\x07\\x1b[31mred\\x1b[0m plain \\x1b[2J\\x1b[1;1Hgone?")
print("javascript:alert(1) https://example.com/?a=<b>")
sys.stdout.buffer.write(b"bytes \\xff\\xfe of no text\\n")
print("x" * 10_000_000)
raise ValueError("<b onmouseover=alert(1)>bold</b>")
"""

WAIT = """
import os
import sys
import time

def wait_for_word(path):
    while not os.path.exists(path):
        time.sleep(0.05)

def load_batch(path):
    wait_for_word(path)

print("ready", flush=True)
if os.environ["RANK"] == "1":
    load_batch(sys.argv[1] + ".said")
    print("the word has come", flush=True)
wait_for_word(sys.argv[1])
"""

LATE = """
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (batch,) in DataLoader(TensorDataset(torch.ones(4 * STEPS, 16)), batch_size=4):
    time.sleep(0.15 if dist.get_rank() == 2 else 0.02)
    optimizer.zero_grad()
    model(batch).sum().backward()
    time.sleep(0.01)
    optimizer.step()
dist.destroy_process_group()
"""

HUNG = """
import os
import time

def wait_for_others():
    time.sleep(100_000)

def load_batch(path):
    time.sleep(100_000)

def step(number):
    print(f"step {number}", flush=True)
    if number == 3:
        if os.environ["RANK"] == "2":
            load_batch("shard-7.tar")
        wait_for_others()

for number in range(10):
    step(number)
"""
HANG_AFTER_S = 3

RESTARTED = """
import os

print("attempt", os.environ["DRUMLINE_ATTEMPT"], flush=True)
assert os.environ["DRUMLINE_ATTEMPT"] != "0" or os.environ["RANK"] != "1", "only once"
"""


class Jobs:
    """
    A home with jobs. After ``make`` many have ended, and one, ``waiting``, runs until ``end``; after ``hang`` one
    hangs until then.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        others = ("DRUMLINE_", "MLFLOW_", "AZUREML_", "SLURM_")
        own = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        self.env = {**own, "DRUMLINE_HOME": str(self.home), "DRUMLINE_CONTAINER": "none"}
        self._word = folder / "word"
        self.has_torch = importlib.util.find_spec("torch") is not None

    def run(self, *words: str, code: int | None = 0) -> str:
        """Run a command, which has that exit code; None: any."""
        argv = [sys.executable, "-m", "drumline", *words]
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=self.env,
            cwd=self.folder,
            timeout=200,
            check=False,
        )
        assert code is None or done.returncode == code, done.stderr
        return done.stdout

    def create(self, name: str, command: str, program: str, code: int = 0, **fields: object) -> None:
        """Run a job of that program to its end, which has that exit code; ``-1``: do not wait for it."""
        source = self.folder / f"{name} code"
        source.mkdir()
        (source / "train.py").write_text(program)
        job = {"command": command, "code": str(source), "experiment_name": "digits", **fields}
        file = self.folder / f"{name}.yml"
        file.write_text(yaml.safe_dump(job))
        words = ("job", "create", "-f", str(file), "-n", name)
        if code < 0:
            self.run(*words)
        else:
            self.run(*words, "--stream", code=code)

    def make(self) -> None:
        # For pictures there is more to see.
        large = bool(os.environ.get("TEST_PICTURES"))
        steps = "--steps 60 --pause 0.3 --work 0.03" if large else "--steps 30"
        size = {"resources": {"instance_count": 4 if large else 2}, **TORCH}
        self.create("good", f"python train.py --lr 0.3 {steps}", TRAIN, **size)
        self.create("bad", f"python train.py --lr 0.1 --bad-step 20 {steps}", TRAIN, code=1, **size)
        self.create("hostile", "python train.py", HOSTILE, code=1, display_name="<b>hostile</b>")
        restarts = {"drumline": {"max_restarts": 1}}
        self.create("restarted", "python train.py", RESTARTED, **SIZE, **TORCH, **restarts)
        self._make_driven()
        if self.has_torch:
            steps = 200 if large else 25
            program, inputs = LATE.replace("STEPS", str(steps)), {"inputs": {"max_steps": steps}}
            self.create("late", "python train.py", program, **SIZE, **TORCH, **inputs)
        self.create("waiting", f"python train.py '{self._word}'", WAIT, -1, **SIZE, **TORCH)
        self.run("drill", "waiting", "wedge", "--node", "1", "--for", "1s")
        events = self.home / "jobs" / "waiting" / "events.jsonl"
        wait_until(lambda: "DrillEnded" in events.read_text(), 60.0, "the drill to end")

    def hang(self) -> None:
        fields = {"drumline": {"hang_after": HANG_AFTER_S, "grace": 1}}
        self.create("hung", "python train.py", HUNG, -1, **SIZE, **TORCH, **fields)

    def _make_driven(self) -> None:
        step = {"type": "command", "command": "echo made > ${{outputs.data}}/x", "outputs": {"data": {}}}
        after = {"type": "command", "command": "cat ${{inputs.data}}/x"}
        after["inputs"] = {"data": "${{parent.jobs.prepare.outputs.data}}"}
        lines = {"type": "pipeline", "jobs": {"prepare": step, "train": after}}
        (self.folder / "lines.yml").write_text(yaml.safe_dump(lines))
        self.run("job", "create", "-f", "lines.yml", "-n", "lines", "--stream")
        words = "python train.py --steps 3 --lr ${{search_space.lr}}"
        sweep = {
            "type": "sweep",
            "sampling_algorithm": "grid",
            "search_space": {"lr": {"type": "choice", "values": [0.1, 0.5, 1.0]}},
            "objective": {"goal": "minimize", "primary_metric": "loss"},
            "limits": {"max_total_trials": 3, "max_concurrent_trials": 1},
            "trial": {"command": words, "code": str(self.folder / "good code")},
        }
        (self.folder / "rates.yml").write_text(yaml.safe_dump(sweep))
        self.run("job", "create", "-f", "rates.yml", "-n", "rates", "--stream")

    def say_the_word(self) -> None:
        """Have rank 1 of ``waiting`` write a line."""
        self._word.with_name("word.said").touch()

    def add_line(self, text: str) -> None:
        """Add a line to the log of rank 0 of ``waiting``."""
        log = min((self.home / "jobs" / "waiting" / "user_logs").glob("*.txt"))
        with log.open("a") as file:
            file.write(text + "\n")

    def end(self) -> None:
        """Let ``waiting`` complete, and end all others that are left."""
        self.say_the_word()
        self._word.touch()
        if (self.home / "jobs" / "waiting").exists():
            self.run("job", "wait", "waiting")
        ended = ("Completed", "Failed", "Canceled")
        listed = json.loads(self.run("job", "list", "-o", "json"))
        left = [job["name"] for job in listed if job["status"] not in ended]
        for name in left:
            self.run("job", "cancel", "-n", name, code=None)
        if left:
            self.run("job", "wait", *left, code=None)
        self.run("warm", "stop")
