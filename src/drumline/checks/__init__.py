"""Checks of nodes: a module for each subject gathers facts on the node, and judges those of all nodes together."""
