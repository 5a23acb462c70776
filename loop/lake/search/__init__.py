"""The search index over the texts of a lake, and near copies."""
