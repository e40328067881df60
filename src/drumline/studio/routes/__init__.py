"""A file for each noun of the interface, with its ROUTES: paths below ``/api/v1`` and plain functions."""
