"""Models in worker processes, and how each kind of model is opened."""
