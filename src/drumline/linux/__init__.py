"""
Calls of the kernel: processes, control groups, mounts, inotify, network interfaces.

The standard library and ``drumline.contract`` only, Python 3.9 syntax: agents import it in the user's own environment.
"""
