"""Values that services hand to pages; the API never sends them."""
