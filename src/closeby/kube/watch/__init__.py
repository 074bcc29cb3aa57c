"""What happens to the objects of a kind, as the API server tells it."""
