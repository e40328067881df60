"""The program that a command runs, and that program's imports, found out without running it."""
