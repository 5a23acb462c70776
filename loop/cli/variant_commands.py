"""`lpfloop config variants`: the recipes."""

from ..lake.query.forms import Form
from .common import AsForm, AsJson, exit_codes


def variants(*, form: AsForm = Form.AUTO, as_json: AsJson = False) -> None:
    """List the recipes that `run --variant` takes."""
    from ..lake.query.row_output import write_frame
    from ..recipes.variant_list import variant_frame

    with exit_codes():
        write_frame(variant_frame(), form, as_json=as_json)
