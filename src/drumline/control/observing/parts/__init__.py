"""The parts of a job: the trials of a sweep, and the experiments of an autotuner."""
