"""Live models: their arguments, dynamic dimensions, export and upload. Imports torch."""

from pt2hub.client.publishing.live_models.shipment import trace

__all__ = ["trace"]
