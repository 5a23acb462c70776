"""The tiny world: the embedded default of the loop, generated, learned and judged on two cores."""
