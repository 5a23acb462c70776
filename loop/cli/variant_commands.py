"""`lpfloop config variants`: the recipes."""

from ..lake.query.forms import Form
from .common import AsForm, AsJson, exit_codes


def variants(*, form: AsForm = Form.AUTO, as_json: AsJson = False) -> None:
    """List the recipes that `run --variant` takes."""
    import polars as pl

    from ..lake.query.row_output import write_frame
    from ..recipes import RECIPES

    rows = [{"name": n, "paper": v.paper, "summary": v.summary} for n, v in RECIPES.items()]
    with exit_codes():
        write_frame(pl.DataFrame(rows), form, as_json=as_json)
