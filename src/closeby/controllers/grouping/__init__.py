"""The pod-grouper: PodGroups of workloads that ask for a gang, and pods that name them."""
