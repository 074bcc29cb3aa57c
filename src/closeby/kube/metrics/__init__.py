"""What operators see of a program at work: metrics and health."""
