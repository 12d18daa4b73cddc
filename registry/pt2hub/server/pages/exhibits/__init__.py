"""Parts of an artifact, arranged for its page: trees, tables and bars out of values that nobody trusts."""
