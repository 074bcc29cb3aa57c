"""What Kubernetes says: typed, partial records and exact quantities."""
