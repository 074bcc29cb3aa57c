"""Clusters without Kubernetes: the engine run on manifests, and made-up clusters to try it on."""
