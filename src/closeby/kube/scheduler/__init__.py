"""The live scheduler."""
