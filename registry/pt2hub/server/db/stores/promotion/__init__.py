"""Promotion: aliases and policies."""
