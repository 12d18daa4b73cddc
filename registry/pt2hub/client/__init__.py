"""The light client: transport, cache, resolve, verdict, loader. Imports torch only to load."""
