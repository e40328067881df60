"""The code, inputs, outputs and environments of a job: brought to the machine before its ranks start."""
