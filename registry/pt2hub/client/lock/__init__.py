"""Lock files: reading, writing, and what they are made from."""
