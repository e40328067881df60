"""Jobs and components of every type."""
