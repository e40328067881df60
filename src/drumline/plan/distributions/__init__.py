"""One launch contract a file; ``table`` says which distribution has which."""
