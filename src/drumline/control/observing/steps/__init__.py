"""The steps of a job's training loops: what its agents noted of them, and the words for it."""
