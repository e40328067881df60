"""
The program on each node: starts, watches and ends the ranks of its node.

The standard library, ``drumline.contract`` and ``drumline.linux`` only, Python 3.9 syntax: it may run in the user's own
environment. ``tests/unit/node/test_python_alone.py`` holds that.
"""
