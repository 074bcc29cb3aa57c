"""Reports as data, field by field as tools may rely on them, and what they are made of."""
