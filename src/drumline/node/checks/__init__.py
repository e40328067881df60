"""The facts of a node that the checks before a job compare. Standard library only; judged by the supervisor."""
