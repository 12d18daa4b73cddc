"""Live models: what they are called with, which of their sizes may change, and how they are shipped. Imports torch."""

from pt2hub.client.publishing.live_models.shipment import trace

__all__ = ["trace"]
