"""The pod-grouper: PodGroups of workloads that are gangs, and pods that name them."""
