"""The engine run on manifests, without a cluster."""
