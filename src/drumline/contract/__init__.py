"""All that crosses machines: plan, events, run folder, channel, errors. Standard library only, Python 3.9 syntax."""
