"""One job from its first node to its end: preparing, attempts, finishing."""
