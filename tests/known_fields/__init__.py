"""Makes the table of fields that the API servers know: `python -m tests.known_fields SCHEMA…`."""
