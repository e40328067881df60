"""The command line: a file per noun."""
