"""One attempt: agents are started, ranks run, and nothing of them is left."""
