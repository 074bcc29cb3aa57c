"""Clusters without a Kubernetes: the engine run on manifests and on generated workloads, with quality metrics."""
