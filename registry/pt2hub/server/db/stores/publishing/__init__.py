"""Publishing: specs, models and versions."""
