"""The live cluster: how to reach it, what it holds and how that changes, and what is written to it."""
