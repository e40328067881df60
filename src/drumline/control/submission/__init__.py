"""The way from a job to a supervised run: what it refers to, its plan, its run folder, and the engine."""
