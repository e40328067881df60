"""Settings of the user: workspaces, defaults, and where runs are tracked."""
