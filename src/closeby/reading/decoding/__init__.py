"""From the documents of a manifest to records: one small reader per kind, and what holds them together."""
