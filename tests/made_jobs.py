"""Run folders with the logs, looks and samples that a test wants, without running anything."""

import json
import os
import struct
from pathlib import Path

from planning import plan

from drumline.contract import events as e
from drumline.contract import log_times, process_identity
from drumline.contract.folder import RunFolder
from drumline.spec.parts.resources import PyTorchDistribution
from drumline.tracking import metrics, mlflow_files, runs


def _mask_crc(data):
    """CRC-32C, turned and shifted, as records of TensorBoard have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def make_scalar(tag, value, step):
    """A record of TensorBoard with one value of the old kind, framed as its files are."""
    name = tag.encode()
    inner = b"\x0a" + bytes([len(name)]) + name + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(inner)]) + inner
    event = (
        b"\x09" + struct.pack("<d", 1.0) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
    )
    head = struct.pack("<Q", len(event))
    return head + struct.pack("<I", _mask_crc(head)) + event + struct.pack("<I", _mask_crc(event))


class MadeJob:
    """A job on ``nodes`` nodes of ``procs`` ranks each that has been submitted, and nothing else."""

    def __init__(self, name="calm_drum", nodes=2, procs=2, **fields):
        self.folder = RunFolder.for_job(name)
        self.folder.create()
        at = {"folder": self.folder}
        distribution = PyTorchDistribution(process_count_per_instance=procs)
        self.plan = plan(nodes=nodes, distribution=distribution, at=at, **fields)
        self.folder.write(self.folder.plan, self.plan.to_json())
        self.folder.begin(e.JobSubmitted(1000.0, "ann", "local"))
        # Its supervisor is this process, which lives.
        self.folder.write(self.folder.supervisor, json.dumps(process_identity.identify_process(os.getpid())))
        self._noted = {}
        self.run_dir = ""
        """Of its run in MLflow's file store, where ``track`` has made one."""

    def track(self):
        uri = mlflow_files.uri_of(self.folder.root)
        self.plan = self.plan._replace(user_env={**self.plan.user_env, "MLFLOW_TRACKING_URI": uri})
        self.folder.write(self.folder.plan, self.plan.to_json())
        runs.begin(self.folder, self.plan, "ann", print)
        self.run_dir = metrics.run_dir_of(self.plan)

    def log_metric(self, name, points):
        """Write a metric of the job's run, given as time in milliseconds, value and step of each point."""
        with open(metrics.metric_path(self.run_dir, name), "a") as file:
            file.writelines(f"{when} {value} {step}\n" for when, value, step in points)

    @property
    def name(self):
        return self.folder.name

    def add(self, *events):
        for event in events:
            self.folder.append(event)

    def start(self, at=1001.0):
        """Start all ranks."""
        self.add(e.JobStarting(at))
        for node in self.plan.nodes:
            self.add(e.AgentJoined(at, node.node, 99, "127.0.0.1"))
            self.add(*(e.RankStarted(at, task.rank, node.node, 100 + task.rank) for task in node.ranks))
        self.add(e.JobRunning(at))

    def log(self, rank, text, at=None, attempt=0, is_earlier=False):
        """Write to the log of a rank; ``at``: when the agent of its node looked."""
        task = next(task for task in self.plan.ranks if task.rank == rank)
        path = Path(self.folder.path, task.log)
        if is_earlier:
            path = path.parent / f"attempt-{attempt}" / path.name
        path.parent.mkdir(exist_ok=True, parents=True)
        with path.open("ab") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
            size = file.tell()
        if at is not None:
            node = next(node.node for node in self.plan.nodes if task in node.ranks)
            looks = Path(self.folder.log_times_path(attempt, node))
            looks.parent.mkdir(exist_ok=True)
            before = self._noted.get((attempt, rank), 0)
            with looks.open("ab") as file:
                file.write(log_times.to_line(at, [log_times.Growth(rank, size, size - before)]))
            self._noted[attempt, rank] = size
        return path
