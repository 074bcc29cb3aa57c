"""What Kubernetes says: typed, partial records, exact quantities, and the reading of manifests."""
