"""Simulated events: Pythia 8 -> detector -> jets -> truth matching. Needs the extra `generate`."""
