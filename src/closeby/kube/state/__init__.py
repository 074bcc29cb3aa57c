"""The cluster as last heard of, in the terms of the engine."""
