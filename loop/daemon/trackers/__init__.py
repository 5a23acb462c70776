"""Adapters of experiment trackers, each in a separate process that ends after sending.

`python -m lpfloop.loop.daemon.trackers NAME` reads a `TrackedBatch` as JSON from standard input.
Sending the same batch again is safe: a point is never there twice.
"""
