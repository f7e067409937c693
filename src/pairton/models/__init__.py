"""Models: how they are loaded and stored, the engines that run their networks, and the built-in weights."""
