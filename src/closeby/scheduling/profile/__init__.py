"""Which plugins take part: from a configuration to instances grouped by extension point."""
