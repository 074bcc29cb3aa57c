"""Where things are: levels, domains, the tree of them, and the distances and costs between them."""
