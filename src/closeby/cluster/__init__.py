"""What is free: columns of nodes by resources, the pods on them, assume and forget with exact undo."""
