"""Programs that write what arrives from the pods of a job to its run folder here."""
