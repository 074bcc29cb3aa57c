"""Pods that talk are moved to where that costs least, on a small copy of the nodes."""
