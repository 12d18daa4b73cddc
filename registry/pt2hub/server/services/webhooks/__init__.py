"""Webhooks: events, their receivers and their deliveries."""
