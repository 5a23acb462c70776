"""The output of a command: rows or one document, in the format of `--json` and `--format`.

A command that prints has a parameter `out`. `with_output` gives it these options, and decides the
format in one place.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any

from ..lake.query.forms import Form
from .common import AsForm, AsJson

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The requested format."""

    form: Form = Form.AUTO
    as_json: bool = False

    @property
    def is_table(self) -> bool:
        """Whether rows become a table for people.

        Raises:
            FormError: if two formats are requested, or Parquet on a terminal.
        """
        from ..lake.query.row_output import is_table

        return is_table(self.form, as_json=self.as_json)

    def rows(self, frame: "pl.DataFrame | pl.LazyFrame", columns: Sequence[str] = ()) -> None:
        """Write rows; a table for people has only `columns`, if given.

        Raises:
            FormError: if two formats are requested, or Parquet on a terminal.
            OutputError: if stdout cannot be written, such as on a full disk.
        """
        from ..lake.query.row_output import write_frame

        write_frame(frame, self.form, columns, as_json=self.as_json)

    def document(self, document: object, draw: Callable[[], None]) -> None:
        """Print a document as JSON, or `draw` it for people."""
        if self.as_json:
            from .tables import print_json

            print_json(document)
        else:
            draw()


DocumentOutput = Annotated[Output, "--json"]
RowOutput = Annotated[Output, "--json", "--format"]


def with_output(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the options of its parameter `out`, if it has one."""
    own = signature(function)
    out = own.parameters.get("out")
    if out is None:
        return function

    @wraps(function)
    def command(*, as_json: bool = False, row_form: Form = Form.AUTO, **given: Any) -> None:
        function(**given, out=Output(form=row_form, as_json=as_json))

    keyword = Parameter.KEYWORD_ONLY
    options = [p for p in own.parameters.values() if p is not out]
    if out.annotation is RowOutput:
        options.append(Parameter("row_form", keyword, default=Form.AUTO, annotation=AsForm))
    options.append(Parameter("as_json", keyword, default=False, annotation=AsJson))
    command.__annotations__ = {option.name: option.annotation for option in options}
    vars(command)["__signature__"] = own.replace(parameters=options)
    return command
