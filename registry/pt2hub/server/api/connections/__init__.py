"""Connections of clients that send or read slowly: they wait in the event loop of the process, not in a thread."""
