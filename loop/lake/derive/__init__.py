"""Tables derived from a run's stored rows by other rules or another parser, without a model."""
