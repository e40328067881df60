"""Which program a command runs, and what that program imports, found out without running it."""
