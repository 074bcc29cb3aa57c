"""What was measured on nodes, and where such measurements come from."""
