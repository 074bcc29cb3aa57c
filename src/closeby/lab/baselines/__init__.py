"""What others do, one policy a file, to compare with."""
