"""The example that is interrupted ends with the very loss of one that is not."""

import os
import re
import signal

import pytest
from frameworks.conftest import skip_without
from frameworks.table import BASE
from waiting import wait_until

from drumline.control.facts import description

SETTINGS = ("--set", "inputs.epochs=3", "inputs.pause=0.1", "distribution.process_count_per_instance=1")


@pytest.fixture
def train(cli, examples):
    skip_without(BASE, "torch")

    def start(name, *words):
        return cli(
            "job", "create", "-f", examples / "checkpointing" / "job.yml", "-n", name, *SETTINGS, *words
        )

    return start


def final_loss(text):
    return re.search(r"final loss (0\.\d{9}), ", text)[1]


def test_an_interrupted_training_ends_as_if_it_never_had_been(cli, train, drumline_home):
    undisturbed = final_loss(train("undisturbed", "--stream").out)
    train("interrupted")
    log = drumline_home / "jobs" / "interrupted" / "user_logs" / "std_log_process_00.txt"

    def trains(attempt):
        def said():
            is_there = len(description.show_job("interrupted")["attempts"]) == attempt and log.exists()
            return is_there and re.search(r"epoch +\d", log.read_text())

        wait_until(said, 120, f"epochs of attempt {attempt}")

    trains(0)
    assert cli("job", "preempt", "interrupted", timeout_s=120).rc == 0
    trains(1)
    os.kill(description.show_job("interrupted")["processes"]["ranks"][1]["pid"], signal.SIGKILL)
    done = cli("job", "stream", "interrupted", timeout_s=200)
    shown = description.show_job("interrupted")
    assert (shown["status"], [one["kind"] for one in shown["attempts"]]) == (
        "Completed",
        ["preemption", "failure"],
    )
    (saved,) = re.findall(r"saved after step (\d+) of 63, [\d.]+ s before the deadline", done.out)
    resumed = re.findall(r"goes on at step (\d+)", done.out)
    assert (resumed[0], len(resumed)) == (saved, 2)
    assert final_loss(done.out) == undisturbed
