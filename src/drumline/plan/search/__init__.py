"""What a sweep tries next, and which trials it gives up: pure, without clock or disk."""
