"""Checkpoints in a bucket of S3, Google or Azure: the storage, and the process that transfers."""
