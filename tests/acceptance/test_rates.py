"""What is compared with figures and needs cores for it: scripts/test runs this before everything else."""

import pytest
from checked_nodes import open_nodes
from isolated_nodes import skip_without
from waiting import wait_until

from drumline.checks.links import read_rates

pytestmark = pytest.mark.timeout(300)

MEASURE = """
import contextlib, os, socket, struct, time
if os.environ["RANK"] == "0":
    server, best = socket.create_server((socket.gethostname(), 7000)), 0.0
    # On a busy machine the sender may wait for its turn, or TCP for a lost packet: the best of as many as it takes.
    for _ in range(60):
        peer, _ = server.accept()
        with peer:
            # Both nodes have the clock of this machine.
            (began,) = struct.unpack("d", peer.recv(8, socket.MSG_WAITALL))
            got, part = 0, bytearray(1 << 16)
            while size := peer.recv_into(part):
                got += size
            best = max(best, got * 8 / (time.monotonic() - began) / 1e6)
        if best > 90:
            break
    print(best)
else:
    peer = None
    while True:
        try:
            peer = socket.create_connection(("node-0", 7000))
        except OSError:
            if peer is not None:
                break  # the other has seen enough
            time.sleep(0.05)
            continue
        with contextlib.suppress(OSError), peer:
            peer.sendall(struct.pack("d", time.monotonic()) + bytes(4_000_000))
            peer.shutdown(socket.SHUT_WR)
            peer.recv(1)
"""


def test_a_link_of_100_mbit_carries_90_to_100(cli, tmp_path):
    skip_without(link={"rate": "100mbit"})
    (tmp_path / "measure.py").write_text(MEASURE)
    done = cli(
        "run", "--nodes", "2", "--isolate", "--link", "100mbit", "--ranks", "0", "--", "python", "measure.py"
    )
    assert done.rc == 0, done.err
    assert 90 <= float(done.out.split()[-1]) <= 100


def test_a_slow_link_is_named_with_its_rate_and_measures_what_it_is():
    with open_nodes(3, link={"rate": "1gbit"}) as nodes:
        nodes.network.set_link(1, rate="100mbit")
        told, near = [], set()

        def is_told():
            # A machine that is busy measures its own cores: then there is no finding, or what waited for a reader comes
            # at once, and there is another try.
            told[:] = [one for one in nodes.check() if one.check == "links"]
            for link, rate in read_rates(nodes.reports).items():
                if 1 in link and 90 <= 8 * rate / 1e6 <= 100:
                    near.add(link)
            return [one.node for one in told] == [1, 1] and len(near) == 4

        wait_until(is_told, 60.0, "four links of node 1 that carry 90 to 100 Mbit/s")
        for one in told:
            assert " Mbit/s " in one.finding
            assert "those of the other nodes" in one.finding
        nodes.network.set_link(1)
        wait_until(lambda: not [one for one in nodes.check() if one.check == "links"], 60.0, "links alike")
