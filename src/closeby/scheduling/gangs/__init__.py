"""What a gang is: its members, its tree of parts, and where it is placed."""
