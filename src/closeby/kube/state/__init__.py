"""The cluster as last known, in the terms of the engine."""
