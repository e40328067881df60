"""
``python node.pyz --supervisor HOST:PORT --node INDEX --address IP``, started once on each node by an engine; or
``join RUN_FOLDER TOKEN NODE_VARIABLE``, which finds all that in the run folder (``node/join.py``); or ``sweep FOLDER``,
after agents that were killed.

The job's secret comes on standard input, one line: arguments and environments can be read by others.
"""

from __future__ import annotations

import argparse
import sys

from drumline.node import agent


def main() -> int:
    if sys.argv[1:2] == ["join"]:
        from drumline.node import join

        return join.main(sys.argv[2:])
    if sys.argv[1:2] == ["sweep"]:
        from drumline.node import join

        join.sweep(sys.argv[2])
        return 0
    parser = argparse.ArgumentParser(prog="drumline-node")
    parser.add_argument("--supervisor", required=True)
    parser.add_argument("--node", type=int, required=True)
    parser.add_argument("--address", required=True)
    parser.add_argument("--scratch", default="")
    arguments = parser.parse_args()
    host, _, port = arguments.supervisor.rpartition(":")
    secret = sys.stdin.readline().strip()
    try:
        agent.serve((host, int(port)), secret, arguments.node, arguments.address, arguments.scratch)
    except OSError as error:
        print(f"node {arguments.node}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
