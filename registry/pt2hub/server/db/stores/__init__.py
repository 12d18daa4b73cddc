"""Stores: queries over one family of tables each. They take a session, return domain values, never commit."""
