"""Tools for all other packages: atomic files, parallel work, limits on time and memory, configuration files."""
