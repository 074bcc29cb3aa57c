"""The sources of `closeby discover`, and what becomes of what they find."""
