"""Golden files: the sentences and tables of each view, in one text file for each view."""
