"""Ranks as a page shows them: their states, their variables, where they are."""
