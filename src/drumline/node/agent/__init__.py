"""The agent: one process per node that starts, watches and ends the ranks of its node."""
