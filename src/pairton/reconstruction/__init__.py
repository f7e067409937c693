"""The reconstruction of events: in memory, from files to one file, or to a folder of parts."""
