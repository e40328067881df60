"""Two jobs beside each other: what differs between them, and what came of it."""
