"""Statistics over figures: whether two differ, and where a series changed. No database, no models."""
