"""From a model to an exported program that computes the same."""
