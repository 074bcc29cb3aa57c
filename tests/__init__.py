"""The tests, in folders named like the rooms of src/closeby."""
