"""Jobs to run over time: generators after published distributions, and traces."""
