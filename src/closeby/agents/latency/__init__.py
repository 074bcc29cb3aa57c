"""How long peers take to answer: whom to ask when, asking them, being asked, and what came of it."""
