"""Runs over time and comparisons as tables on a terminal."""
