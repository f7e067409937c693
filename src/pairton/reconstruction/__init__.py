"""The main job: events in, particles with four-momenta and probabilities out; in memory, in files, in parts."""
