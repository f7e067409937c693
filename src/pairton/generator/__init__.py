"""Simulates events with Pythia 8 and a fast detector, with truth. Needs the extra `generate`."""
