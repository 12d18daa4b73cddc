"""The registry: services over PostgreSQL and a blob storage, and the API in front of them."""
