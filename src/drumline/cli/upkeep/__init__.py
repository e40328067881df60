"""Commands that clean up: disk usage, pruning, the cache, warm interpreters."""
