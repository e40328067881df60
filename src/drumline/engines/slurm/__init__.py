"""Slurm: a job of ours is a batch job of its; the supervisor is the batch step, one ``srun`` starts the agents."""
