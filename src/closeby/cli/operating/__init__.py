"""Shared parts of the commands that work on a cluster until they are stopped."""
