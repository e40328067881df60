"""
``python -m drumline.node join RUN_FOLDER TOKEN NODE_VARIABLE`` is the agent of a node that an engine starts by its own
means; ``sweep FOLDER`` removes what killed agents left (``node/agent/join.py``). ``enter`` runs a command beside a rank
(``node/entering.py``).
"""

from __future__ import annotations

import sys

from drumline.node.agent import join


def main() -> int:
    command, *arguments = sys.argv[1:]
    if command == "sweep":
        join.sweep(arguments[0])
        return 0
    if command == "enter":
        from drumline.node import entering

        return entering.main(arguments)
    return join.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
