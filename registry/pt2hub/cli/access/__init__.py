"""Commands of login and settings."""
