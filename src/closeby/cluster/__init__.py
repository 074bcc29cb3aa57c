"""What is free: the cluster in columns (nodes by resources), the pods on it, assume and forget with exact undo."""
