"""What the engine has heard: who exists, what waits in which order, and what was decided before."""
