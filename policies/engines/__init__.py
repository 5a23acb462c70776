"""Engines that draw and score within the calling process, and their protocol."""
