"""The engine over virtual time: jobs arrive, wait, run and end; what happened is kept in columns."""
