"""Single lines of logs by their number: where they are, whose they are, and which of them match."""
