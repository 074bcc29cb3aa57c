"""Rounds of decisions: what changed is queued, and what is due is decided, item by item."""
