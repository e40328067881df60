"""Programs of the pods of a job, which share no files with the machine that submitted it."""
