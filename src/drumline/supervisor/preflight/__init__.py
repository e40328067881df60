"""The checks of nodes: facts that agents have gathered, judged over all nodes together. Pure."""
