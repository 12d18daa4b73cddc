"""Facts about this machine, without importing torch."""
