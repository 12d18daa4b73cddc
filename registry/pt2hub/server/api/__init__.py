"""REST API. Each handler parses the request, makes one service call and renders the result."""
