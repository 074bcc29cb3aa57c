"""What the readers of several dialects share: layers, subgroups, plans, and what is wrong with an object."""
