"""Content-addressed storage behind ports: a local directory, S3, memory."""
