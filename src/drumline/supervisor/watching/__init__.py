"""Whether ranks go on, and where they are."""
