"""
The program on each node: starts, watches and ends the ranks of its node.

Standard library and ``drumline.contract`` only, Python 3.9 syntax: it may run in the user's own environment.
"""
