"""Jobs as a notebook shows them."""
