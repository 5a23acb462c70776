"""The recipes as rows: name, paper, summary."""

import polars as pl

from . import RECIPES


def variant_frame() -> pl.DataFrame:
    """Return the recipes, one row each."""
    rows = [{"name": n, "paper": v.paper, "summary": v.summary} for n, v in RECIPES.items()]
    return pl.DataFrame(rows)
