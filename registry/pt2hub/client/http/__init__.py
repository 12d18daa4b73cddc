"""HTTP to the server and to its storage."""
