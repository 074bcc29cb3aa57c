"""What is written to the cluster: bindings, Events, conditions, labels, and the Lease of who may write."""
