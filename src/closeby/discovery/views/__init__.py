"""What was discovered, as text on a terminal."""
