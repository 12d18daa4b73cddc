"""Facts about this machine; nothing here imports torch."""
