"""Web pages, rendered on the server and usable without scripts."""
