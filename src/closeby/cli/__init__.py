"""The command line: one thin file per command; what several of them share is in the folders."""
