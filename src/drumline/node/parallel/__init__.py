"""The programs that run a parallel job on its nodes, in the user's own Python: a manager for each, and its workers."""
