"""The first rows of a table, short enough to look at: as text, and as HTML for a notebook.

Only the shown rows are read; rows are counted only if the file's metadata gives their number.
Texts of models are escaped: control characters are made visible, and markup stays text.
"""

from dataclasses import dataclass

import polars as pl
from rich.console import Console

from ..data.sanitize import one_line
from ..lake.query.row_table import cell_text, print_table
from ..lake.trace.html_page import page_html
from ..lake.trace.page import Grid, Page, PageSection

SHOWN = 8
"""How many rows are shown."""
CELL = 300
"""How many characters of a value a notebook shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstRows:
    """The head of a table; `height` is None if more rows follow and their number is unknown."""

    table: str
    height: int | None
    rows: pl.DataFrame
    fault: str = ""

    @classmethod
    def of(cls, frame: pl.LazyFrame, table: str) -> "FirstRows":
        """Read the first rows of a frame; of a stored table, count the others, too."""
        try:
            head = frame.head(SHOWN + 1).collect()
            height = head.height if head.height <= SHOWN else None
            if height is None and table:
                height = int(frame.select(pl.len()).collect().item())
        except pl.exceptions.PolarsError as error:
            fault = one_line(str(error), limit=2000)
            return cls(table=table, height=None, rows=pl.DataFrame(), fault=fault)
        return cls(table=table, height=height, rows=head.head(SHOWN))

    @property
    def title(self) -> str:
        """The numbers of rows and columns, and the table's name."""
        if self.fault:
            return f"rows that cannot be computed: {self.fault}"
        what = f"{self.table.replace('_', ' ')}: " if self.table else ""
        shown = self.rows.height
        count = f"{self.height:,}" if self.height is not None else f"more than {shown:,}"
        noun = "row" if self.height == 1 else "rows"
        first = "" if shown == self.height else f"; the first {shown}, .collect() reads all"
        return f"{what}{count} {noun}, {self.rows.width} columns{first}"

    @property
    def text(self) -> str:
        """The head as a table for a terminal, and the names of the columns that do not fit."""
        console = Console(color_system=None)
        with console.capture() as captured:
            if self.rows.height:
                print_table(self.rows, is_list=False, console=console)
        return f"{self.title}\n{captured.get()}".rstrip("\n")

    @property
    def html(self) -> str:
        """The head as an HTML table."""
        columns = tuple(self.rows.columns)
        cells = tuple(
            tuple(cell_text(value)[:CELL] for value in row) for row in self.rows.iter_rows()
        )
        grid = Grid(columns=columns, rows=cells, names=len(columns))
        section = PageSection(heading="", grid=grid)
        return page_html(Page(title=self.title, sections=(section,)))
