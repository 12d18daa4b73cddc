"""Commands about blobs on this machine."""
