"""The disk: what takes it up, what needs what, and the removal of the rest."""
