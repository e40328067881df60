"""Drawings of a page: values in as many bins as it has room for, spans of time, and graphs."""
