"""pt2hub: publish a PyTorch model once, pull proven AOTInductor artifacts."""

__version__ = "0.1.0"
