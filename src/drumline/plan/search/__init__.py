"""The trials that a sweep tries next, and those that it gives up: pure, without clock or disk."""
