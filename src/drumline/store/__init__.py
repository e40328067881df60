"""The index of jobs and the records of assets. Run folders are the truth: the index can be rebuilt from them."""
