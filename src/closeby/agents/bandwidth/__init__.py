"""The bandwidth of a node: what its interface has, and the node's status that advertises it."""
