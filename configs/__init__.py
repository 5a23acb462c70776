"""Run configuration: the typed schema, the loader and the presets."""
