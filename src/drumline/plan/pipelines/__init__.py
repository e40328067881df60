"""The steps of a pipeline: their order, and what their inputs and outputs are bound to. Pure."""
