"""What the commands share that work on a cluster until they are told to stop."""
