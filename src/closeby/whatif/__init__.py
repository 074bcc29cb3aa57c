"""What would have to be different: answers that the engine itself gives, by trying."""
