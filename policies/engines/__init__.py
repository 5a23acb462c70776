"""Engines that draw, score and embed in the process that calls them, and their protocol."""
