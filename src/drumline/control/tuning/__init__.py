"""A job tuned: which settings are tried, the sweep that tries them, what came of it, and the job file that won."""
