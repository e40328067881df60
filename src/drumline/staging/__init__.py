"""What surrounds the ranks on a node: code, inputs, outputs."""
