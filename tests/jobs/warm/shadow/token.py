"""In the place of the library's, which others of its modules import."""

EXACT_TOKEN_TYPES = {}
