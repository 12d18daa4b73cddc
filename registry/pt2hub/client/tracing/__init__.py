"""Live models: what they are called with, which of their sizes may change, and how they are shipped. Imports torch."""

from pt2hub.client.tracing.shipping import traced

__all__ = ["traced"]
