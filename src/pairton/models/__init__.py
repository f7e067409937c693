"""Models: loading and storing them, and the engines that run their networks. The built-in weights are beside."""
