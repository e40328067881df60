"""What of a folder is code, what is known of it, and where it is put together: the parts of ``staging.snapshot``."""
