"""Engines that draw, score and embed within the calling process, and their protocol."""
