"""In the place of the library's."""
