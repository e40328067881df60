"""The index over the jobs of a home. Run folders are the truth; this can be rebuilt from them."""
