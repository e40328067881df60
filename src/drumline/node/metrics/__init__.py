"""The use that a node and its ranks make of processors, memory, disks, network and GPUs."""
