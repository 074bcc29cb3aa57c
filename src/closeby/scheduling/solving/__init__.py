"""Pods of unlike kinds, and hard limits: best fit over kinds of nodes, then an integer program."""
