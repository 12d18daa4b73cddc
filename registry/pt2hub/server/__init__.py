"""The server: services over PostgreSQL and a blob storage, with API and pages."""
