"""Processes that the kernel has ended for want of memory, by its log and its counts."""

import os

import pytest

from drumline.node.diagnostics import exhaustion as kernels


@pytest.mark.root
@pytest.mark.parametrize(
    ("line", "ran_out"),
    [
        ("Memory cgroup out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB", True),
        ("Out of memory: Killed process 4711 (python) total-vm:1kB", True),
        ("Out of memory: Killed process 4712 (python) total-vm:1kB", False),
        ("Killed process 4711", False),
    ],
)
def test_a_process_that_the_log_names_ran_out_of_memory(line, ran_out, monkeypatch):
    monkeypatch.setattr(kernels, "_list_counters", list)
    memory = kernels.OomWatcher()
    if memory._log < 0:
        pytest.skip("reading the kernel's log needs the right to")
    try:
        with open("/dev/kmsg", "w") as log:
            log.write(f"drumline's tests: {line}\n")
    except OSError:
        pytest.skip("writing to the kernel's log needs root")
    assert memory.ran_out([4711], 0) == ran_out
    assert not kernels.OomWatcher().ran_out([4711], 0), "what was logged before does not count"


def test_what_was_counted_seconds_ago_is_another_process(monkeypatch):
    """However often it is looked."""
    now, count = [100.0], [0]
    monkeypatch.setattr(kernels, "_list_counters", lambda: ["file"])
    monkeypatch.setattr(kernels, "_open_kernel_log", lambda: -1)
    monkeypatch.setattr(kernels, "_read_count", lambda _: count[0])
    monkeypatch.setattr(kernels.time, "monotonic", lambda: now[0])
    memory = kernels.OomWatcher()
    count[0] = 1
    for _ in range(30):
        assert memory.ran_out([1], 0)
        memory.look()
        now[0] += 0.05
    for _ in range(30):
        memory.look()
        now[0] += 0.05
    assert not memory.ran_out([1], 0)


OTHERS = "Out of memory: Killed process 4712 (python) total-vm:9kB, anon-rss:300000kB, file-rss:0kB"


@pytest.mark.parametrize(
    ("counter", "said", "peak_bytes", "ran_out"),
    [
        ("/proc/vmstat", OTHERS, 200 << 20, False),
        ("/proc/vmstat", OTHERS, 400 << 20, True),  # Our shell may have waited for that process.
        ("/proc/vmstat", OTHERS.replace("4712", "4711"), 0, True),
        ("memory.events", OTHERS, 200 << 20, False),
        ("/proc/vmstat", None, 1 << 20, False),
        ("/proc/vmstat", None, 1 << 50, True),
        ("memory.events", None, 1 << 20, True),
    ],
)
def test_memory_that_ran_out_elsewhere_ended_nobody_here(monkeypatch, counter, said, peak_bytes, ran_out):
    """``said``: what the kernel's log says; None: only others may read it."""
    count = [0]
    monkeypatch.setattr(kernels, "_list_counters", lambda: [counter])
    monkeypatch.setattr(kernels, "_read_count", lambda _: count[0])
    monkeypatch.setattr(kernels, "_has_initial_pids", lambda: True)
    log, writer = os.pipe2(os.O_NONBLOCK)
    monkeypatch.setattr(kernels, "_open_kernel_log", lambda: log if said else -1)
    memory = kernels.OomWatcher()
    os.write(writer, (said or "").encode())
    count[0] = 1
    assert memory.ran_out([4711], peak_bytes) == ran_out
    for descriptor in (log, writer):
        os.close(descriptor)
