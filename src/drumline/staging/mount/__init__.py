"""The process that serves a mounted input, and the choice between a mount and a download."""
