"""Ways into a job: its folders, and commands beside its ranks."""
