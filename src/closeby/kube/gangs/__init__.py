"""Starts of gangs: plans, what is reported of them, and what becomes of those that do not end."""
