"""The documentation as a site: the repository's pages, with the reference that is generated from the code."""
