"""Content-addressed blob storage: ports by capability, and adapters.

Memory, local directory and S3 pass one contract suite (tests/contract/test_storage.py). Letting clients transfer
bytes by themselves is a capability of its own, which S3 alone has (tests/contract/test_transfers.py); no adapter has
stubs.
"""
