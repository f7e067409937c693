"""The page of results, made from the files of the workflow: read, compared, drawn, written."""
