"""What would let the pods of an application fit, or lie closer to each other."""
