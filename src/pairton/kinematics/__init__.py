"""A kinematic likelihood after KLFitter, vectorised over events and permutations: `fitting.KinematicFit`."""
