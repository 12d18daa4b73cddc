"""What travels over /api/v1 and is read alike at both ends: JSON shapes, and documents that users write."""
