"""Models in processes of their own, and how each kind of model is opened."""
