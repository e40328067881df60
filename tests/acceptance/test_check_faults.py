"""Faults that are made on one isolated node: each check names that node, and no other."""

import os
import resource
import socket
import subprocess
from pathlib import Path

import pytest
from checked_nodes import open_nodes
from waiting import wait_until

from drumline.checks.findings import NodeDemand
from drumline.engines.local.isolation import inside
from drumline.linux import namespaces

pytestmark = pytest.mark.timeout(300)

GPU = "0, {driver}, 1, {errors}, Not Active, Not Active, No"


def write_program(folder: Path, name: str, *lines: str) -> None:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    program.chmod(0o755)


BIND_IPV6_ONLY = "/proc/sys/net/ipv6/bindv6only"


class Fault:
    """What is wrong with node 1; ``made`` in its own view of files, network and limits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cores = len(os.sched_getaffinity(0))
        # Some containers have it read-only, and some machines no IPv6.
        self.has_ipv6 = os.access(BIND_IPV6_ONLY, os.W_OK)
        for name in ("code", "other code", "run", "shared/here"):
            (folder / name).mkdir(parents=True)
        (folder / "code" / "train.py").write_text("print(1)\n")
        (folder / "other code" / "train.py").write_text("print(2)\n")
        for name, driver, errors in (("sound", "550.54", 0), ("odd", "535.10", 3)):
            write_program(folder / name, "nvidia-smi", GPU.format(driver=driver, errors=errors))
        write_program(folder / "odd", "mpirun", "mpirun (Open MPI) 1.2.3")
        package = folder / "packages" / "torch-9.9.9.dist-info"
        package.mkdir(parents=True)
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9.9\n")

    def settings(self, node: int) -> dict[str, object]:
        programs = self.folder / ("odd" if node == 1 else "sound")
        return {
            "paths": {"run folder": str(self.folder / "run")},
            "shared": [str(self.folder / "shared" / "here")],
            "code": str(self.folder / "code"),
            "path": f"{programs}:{os.environ['PATH']}",
        }

    def make(self) -> None:
        # Of its names the own one is the loopback's, and the others are asked of a server that does not answer.
        mounts = Path("/proc/self/mountinfo").read_text()
        assert " /etc/hosts " in mounts, "the machine's own file stays as it is"
        Path("/etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 lab-1\n")
        if " /etc/nsswitch.conf " in mounts:
            with open("/etc/nsswitch.conf", "a") as file:
                file.write("hosts: files dns\n")
        silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        silent.bind(("127.0.0.1", 53))
        held = socket.create_server(("0.0.0.0", 29500))
        self.sockets = (silent, held)
        if self.has_ipv6:
            Path(BIND_IPV6_ONLY).write_text("1")
        os.environ.update(http_proxy="http://user:secret@proxy:3128", SSL_CERT_FILE="/nowhere/cert.pem")
        os.environ.pop("no_proxy", None)
        os.environ.pop("NO_PROXY", None)
        os.environ["PYTHONPATH"] = str(self.folder / "packages")
        namespaces.mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m")
        namespaces.mount("tmpfs", str(self.folder / "run"), "tmpfs", 0, "size=256k")
        namespaces.mount("tmpfs", str(self.folder / "shared"), "tmpfs", 0, "size=64k")
        namespaces.bind(str(self.folder / "other code"), str(self.folder / "code"))
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        os.umask(0o077)


NAMED = {
    "packages": "its torch is 9.9.9",
    "mpi": "its mpirun is mpirun (Open MPI) 1.2.3",
    "host-name": "its own host name lab-1 is 127.0.1.1, which no other node reaches",
    "look-ups": "takes",
    "ports": "port 29500 is held by",
    "ipv6": "bindv6only is 1",
    "proxies": "http_proxy",
    "shared-memory": "/dev/shm has 64 MiB",
    "limits": "open no more files than 256",
    "disk": "cannot be written to: No space left on device",
    "user": "its umask is 077, and 022",
    "gpus": "3 memory errors",
    "drivers": "its NVIDIA driver is 535.10, and 550.54 on nodes 0 and 2",
    "code": "differ from those on nodes 0 and 2",
    "shared-paths": "is not there",
}


TIMED = ("look-ups", "disk")


def test_each_fault_is_found_on_the_node_that_has_it_and_on_no_other(tmp_path, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    fault = Fault(tmp_path)
    settings = {node: fault.settings(node) for node in range(3)}
    before = os.umask(0o022)
    try:
        with open_nodes(3, {1: fault.make}, shm_size="2g") as nodes:
            found = nodes.check(settings, NodeDemand(ranks=1, cores=min(2, fault.cores)))
    finally:
        os.umask(before)
    named = dict(NAMED)
    if fault.cores > 1:
        named["cores"] = "1 of 2 cores"
    if not fault.has_ipv6:
        del named["ipv6"]
    for check, said in named.items():
        told = [one for one in found if one.check == check and said in one.finding]
        assert 1 in {one.node for one in told}, (check, found)
        assert all(one.remedy for one in told)
        # On a busy machine a sound node's disk or name service is slow too.
        assert check in TIMED or {one.node for one in found if one.check == check} == {1}, found
    assert "secret" not in repr(found)


def run_in(nodes, network, *words: str) -> None:
    def enter_and_run():
        inside.enter_network(nodes.network.user, network)
        subprocess.run([inside.find_program("ip"), *words], check=True)
        return ()

    inside.call_in_child(enter_and_run)


def test_a_node_that_cannot_reach_another_is_named():
    def list_errors(nodes):
        return [one for one in nodes.check() if one.check == "connections" and one.status == "error"]

    with open_nodes(3) as nodes:
        assert list_errors(nodes) == []
        run_in(nodes, nodes.network.networks[1], "route", "add", "unreachable", "10.77.0.3/32")
        (found,) = list_errors(nodes)
        assert found.node == 1
        assert found.finding.startswith(
            "it cannot connect to node 2 (lab-2) at a port that the kernel chose: "
        )


def test_a_switch_that_swallows_large_packets_is_found_with_their_size():
    def list_told(nodes):
        return [one for one in nodes.check() if one.check == "large-packets"]

    with open_nodes(3) as nodes:
        switch = nodes.network._switch
        for node in range(3):
            run_in(nodes, switch, "link", "set", f"port{node}", "mtu", "9000")
            run_in(nodes, nodes.network.networks[node], "link", "set", "eth0", "mtu", "9000")
        wait_until(lambda: not list_told(nodes), 60.0, "packets that arrive")
        # Both ends agree on 9000, so that TCP does too, and one end of a cable between them does not.
        run_in(nodes, switch, "link", "set", "port1", "mtu", "1500")
        said = "packets of 9000 bytes from node {0} (lab-{0}) do not arrive, and small ones do"
        wanted = {(1, said.format(0)), (1, said.format(2)), (0, said.format(1)), (2, said.format(1))}

        def is_told():
            told = {(one.node, one.finding) for one in list_told(nodes)}
            return told and told <= wanted

        wait_until(is_told, 60.0, "packets that do not arrive")
