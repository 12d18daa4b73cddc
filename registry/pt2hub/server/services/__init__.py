"""Use cases, one family each: they own the transaction and raise domain errors."""
