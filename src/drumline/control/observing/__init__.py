"""Descriptions of jobs: what ``job show``, ``top``, ``metrics``, ``timeline`` and ``stacks`` print."""
