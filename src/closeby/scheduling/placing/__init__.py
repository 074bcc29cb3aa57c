"""How a work item gets its nodes: one cycle, on a statement that can be undone."""
