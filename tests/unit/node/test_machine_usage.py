"""What a machine says of itself, in the kernel's own words."""

import os

from drumline.node.metrics import machine_usage

STAT = b"""cpu  400 0 200 1000 50 10 20 5 0 0
cpu0 100 0 100 500 25 5 10 2 0 0
cpu1 300 0 100 500 25 5 10 3 0 0
cpu10 9 9 9 9 9 9 9 9 9 9
intr 12345 1 2 3
cpu99 not a core's line any more
"""
MEMINFO = b"""MemTotal:       1000 kB
MemFree:         100 kB
MemAvailable:    600 kB
HugePages_Total:       0
SwapTotal:       500 kB
SwapFree:        400 kB
Odd:
"""
NETWORK = b"""Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls
    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0
  eth0:100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0
 ib0.8: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0
"""
DISKS = b"""   8       0 sda 5 1 10 7 6 2 20 9 0 4 16
   8       1 sda1 5 1 10 7 6 2 20 9 0 4 16
 253       0 dm-0 5 1 10 7 6 2 20 9 0 4 16
 short
"""
TICKS = os.sysconf("SC_CLK_TCK")


def test_only_the_nodes_own_cores_count():
    assert machine_usage.parse_busy(STAT, {b"cpu0", b"cpu1"}) == ((215 + 415) / TICKS, 2)
    assert machine_usage.parse_busy(STAT, {b"cpu1"}) == (415 / TICKS, 1)
    assert machine_usage.parse_busy(b"", {b"cpu1"}) == (0.0, 0)


def test_memory_that_can_be_had_is_not_used():
    assert machine_usage.parse_memory(MEMINFO) == ((400 << 10, 1000 << 10), (100 << 10, 500 << 10))
    assert machine_usage.parse_memory(b"") == ((0, 0), (0, 0))


def test_bytes_are_counted_once():
    assert machine_usage.parse_network(NETWORK, {b"eth0"}) == (100, 200)
    assert machine_usage.parse_network(NETWORK, set()) == (110, 220)
    assert machine_usage.parse_disks(DISKS, {b"sda"}) == (5120, 10240)
    assert machine_usage.parse_disks(DISKS, set()) == (0, 0)


def test_this_machine():
    machine = machine_usage.MachineReader()
    try:
        reading = machine.read()
        assert reading.cores == len(os.sched_getaffinity(0))
        assert 0 < reading.memory[0] < reading.memory[1]
        assert machine.read().busy_s >= reading.busy_s > 0
    finally:
        machine.close()


def test_the_folders_above_a_group():
    upwards = machine_usage._list_groups_above
    assert upwards("/a/b", root="/", mount="/sys/fs/cgroup") == [
        "/sys/fs/cgroup/a/b",
        "/sys/fs/cgroup/a",
        "/sys/fs/cgroup",
    ]
    assert upwards("/docker/1/x", root="/docker/1", mount="/cg") == ["/cg/x", "/cg"]
    assert upwards("/../x", root="/", mount="/cg") == ["/cg"]
    assert upwards("/", root="/", mount="/cg") == ["/cg"]
