"""Jobs that were submitted: which there are, what became of them, their end, and their outputs."""
