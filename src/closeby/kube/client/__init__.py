"""How a cluster is reached: who we are to it, requests, and what can go wrong with them."""
