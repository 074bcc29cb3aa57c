"""What Kubernetes says: typed, partial records of its objects, exact quantities, and the reading of manifests."""
