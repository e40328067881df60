"""How jobs look in a notebook."""
