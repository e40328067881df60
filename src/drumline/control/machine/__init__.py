"""What belongs to this machine: computes, the cache of data, and warm interpreters."""
