"""Commands that make failures on purpose."""
