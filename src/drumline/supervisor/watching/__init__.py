"""Watches over ranks: whether they go on, and where they are."""
