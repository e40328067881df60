"""Getting to know the command line, and setting it up: hints, completion, manual pages, schemas, a first job file."""
