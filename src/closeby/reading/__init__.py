"""Reads what people and API servers write: manifests, configurations, and every dialect of gangs."""
