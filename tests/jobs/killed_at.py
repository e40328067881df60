"""
A drumline command in which whoever comes to a named point is sent a signal: argv[1] is the point, argv[2] the signal,
the rest the command.

``before JobRunning`` and ``after JobRunning``: the supervisor, around writing that event. ``before LaunchRanks`` and
``after LaunchRanks``: an agent, around doing what that message says; ``of node 1`` behind it chooses one.
"""

import os
import sys

from drumline.cli.main import main
from drumline.contract.folder import RunFolder
from drumline.node.agent import agent

moment, name = sys.argv[1].split()[:2]
node = int(sys.argv[1].split()[-1]) if " of node " in sys.argv[1] else 0
number = int(sys.argv[2])


def around(step, what, is_here=lambda *_: True):
    def do(self, argument):
        is_it = what(argument) == name and is_here(self)
        if is_it and moment == "before":
            os.kill(os.getpid(), number)
        done = step(self, argument)
        if is_it and moment == "after":
            os.kill(os.getpid(), number)
        return done

    return do


RunFolder.append = around(RunFolder.append, lambda event: type(event).__name__)
agent.Agent._obey = around(
    agent.Agent._obey, lambda message: type(message).__name__, lambda self: self._hello.node == node
)
sys.exit(main(sys.argv[3:]))
