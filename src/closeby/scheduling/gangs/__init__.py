"""What a gang is: its members, its tree of parts, and where it lies once it is placed."""
