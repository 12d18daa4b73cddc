"""Storage in an S3 bucket; the only package that imports boto3.

Objects are read and written by the plain client. boto3's transfer manager is not used: it may choose its CRT client,
which ignores the configured endpoint and goes to AWS (boto3 #4839), and it can neither hash bytes on their way nor
create an object only where none exists (docs/decisions/0007-s3-without-the-transfer-manager.md).
"""

from pt2hub.server.blobs.s3.storage import S3Storage

__all__ = ["S3Storage"]
