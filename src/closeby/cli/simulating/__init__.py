"""Runs over time as commands ask for them, and pictures of runs."""
