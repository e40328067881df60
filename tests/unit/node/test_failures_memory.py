"""What the kernel's log says of a process that it has ended for want of memory."""

import pytest

from drumline.node import failures


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
    monkeypatch.setattr(failures, "_counters", list)
    memory = failures.Memory()
    try:
        with open("/dev/kmsg", "w") as log:
            log.write(f"drumline's tests: {line}\n")
    except OSError:
        pytest.skip("writing to the kernel's log needs root")
    assert memory.ran_out(4711) == ran_out
    assert not failures.Memory().ran_out(4711), "what was logged before does not count"
