"""Why no place was found: facts, and the words for them."""
