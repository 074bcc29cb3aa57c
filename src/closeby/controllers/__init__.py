"""Controllers: what keeps PodGroups, statuses and admission checks of a live cluster up to date."""
