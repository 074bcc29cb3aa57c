"""Runs over time and comparisons as JSON."""
