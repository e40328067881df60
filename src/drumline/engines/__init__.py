"""Who gives nodes. Engines see plans, never specs."""
