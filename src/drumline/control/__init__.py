"""The verbs of every surface: submit, watch, cancel, download ..."""
