"""Carries out plans of preemption: writes each down, evicts its victims, and keeps to it after a restart."""
