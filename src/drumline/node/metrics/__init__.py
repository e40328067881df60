"""What a node and its ranks use: processors, memory, disks, network and GPUs."""
