"""The same jobs under several policies, and how surely they differ."""
