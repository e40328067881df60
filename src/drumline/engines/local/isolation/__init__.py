"""Isolated nodes: each with a network, a host name, shared memory, mounts and limits of its own, on this machine."""
