"""The facts of jobs, each in one place: a job, its ranks, lists of jobs, and what changes. Surfaces render them."""
