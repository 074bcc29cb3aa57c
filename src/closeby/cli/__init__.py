"""The command line: one thin file per command; what several of them share lies in the folders."""
