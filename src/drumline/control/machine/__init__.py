"""The things that belong to this machine: computes, the cache of data, and warm interpreters."""
