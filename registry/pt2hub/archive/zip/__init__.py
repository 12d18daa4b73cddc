"""The zip format: read strictly, written reproducibly."""
