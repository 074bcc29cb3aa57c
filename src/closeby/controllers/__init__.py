"""Controllers: what keeps PodGroups, AppGroups and NetworkTopologies of a live cluster true."""
