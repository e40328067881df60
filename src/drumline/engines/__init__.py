"""Sources of nodes. Engines see plans, never specs."""
