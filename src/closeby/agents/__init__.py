"""What runs on each node: it measures latencies to its peers and advertises its bandwidth."""
