"""Clusters without Kubernetes: the engine run on manifests and generated workloads, with quality metrics."""
