"""The web pages: rendered here, readable without scripts; small scripts add charts, live logs and search."""
