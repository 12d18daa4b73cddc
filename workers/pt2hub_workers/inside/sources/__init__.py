"""Builds the model of a spec's source: in eval mode, each weight with its own storage."""

from pt2hub_workers.inside.sources.build import build_model
from pt2hub_workers.inside.sources.storage import own_storage

__all__ = ["build_model", "own_storage"]
