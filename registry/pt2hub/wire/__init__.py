"""Wire format of /api/v1, shared by client and server: JSON shapes and documents that users write."""
