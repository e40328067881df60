"""The logs of ranks as they grow, and what a person sees of them."""
