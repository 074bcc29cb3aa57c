"""What would let a gang or a plain pod fit, or lie closer."""
