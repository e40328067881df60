"""The jobs as web pages: a reader of run folders and of the index, which may be killed at any time."""
