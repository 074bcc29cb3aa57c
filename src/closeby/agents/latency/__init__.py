"""Latency between nodes: which peers to probe when, the probes, answering them, and the results."""
