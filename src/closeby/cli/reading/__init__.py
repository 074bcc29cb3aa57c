"""What commands read, from files or from the live cluster."""
