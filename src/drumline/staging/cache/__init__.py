"""The cache of fetched content: its files, its lock files, the leases of running jobs, and what is removed from it."""
