"""Preemption: which pods of lower priority must go so that an item fits, where that costs the least."""
