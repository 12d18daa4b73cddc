"""REST API: each handler parses, makes one service call, renders."""
