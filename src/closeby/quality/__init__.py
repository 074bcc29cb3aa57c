"""How good placements are: one measure a module, the same for live and simulated clusters."""
