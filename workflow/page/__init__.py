"""Makes pages of results from the files of the workflow."""
