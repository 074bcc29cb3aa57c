"""How fast closeby decides: the shapes that are measured, and the table that comes out."""
