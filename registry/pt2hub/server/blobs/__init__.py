"""Content-addressed bytes: ports by capability, and their adapters.

Memory, local directory and S3 pass one contract suite (tests/contract/test_storage.py). Handing out presigned
addresses is a capability of its own, to come as its own port; no adapter has stubs.
"""
