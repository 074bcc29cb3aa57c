"""What the engine knows: which pods and gangs exist, and which items wait, in which order."""
