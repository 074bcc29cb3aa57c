"""How much a node's network carries: what its interface says, and the node's status that tells it."""
