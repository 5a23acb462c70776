"""The search index over the texts of a lake, its embedders, and near copies."""
