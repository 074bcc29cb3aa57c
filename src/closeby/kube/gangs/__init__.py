"""Starts of gangs: plans, what is told of them, and what becomes of those that do not end."""
