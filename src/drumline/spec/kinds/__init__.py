"""The kinds of values and mappings in schemas, and the report of what is wrong with a file."""
