"""Moves pods with traffic between them to where it costs least, on a small copy of the nodes."""
