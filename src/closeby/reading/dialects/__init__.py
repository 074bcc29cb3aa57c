"""One small reader per dialect: a peer's objects and annotations in closeby's terms."""
