"""Plans, rank by rank: a job and the shapes of its nodes in, a plan out. No clock, no network."""
