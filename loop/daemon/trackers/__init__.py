"""Adapters of trackers of experiments, each in a process of its own that ends once it has told.

`python -m lpfloop.loop.daemon.trackers NAME` reads a `TrackedBatch` as JSON from standard input.
To tell the same batch again changes nothing: a point is never there twice.
"""
