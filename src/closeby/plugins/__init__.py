"""The policies: one a file, each written only against the extension points."""
