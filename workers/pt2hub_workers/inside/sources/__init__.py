"""From a spec's source to the model, in eval mode, with storage of its own for each weight."""

from pt2hub_workers.inside.sources.building import build_model
from pt2hub_workers.inside.sources.storage import own_storage

__all__ = ["build_model", "own_storage"]
