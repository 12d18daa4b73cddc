"""The JSON shapes of /api/v1, shared by server and client."""
