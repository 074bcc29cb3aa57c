"""Reports as tables and trees on a terminal."""
