"""Rows of a run: a lazy frame that shows its first rows, and can become a `datasets.Dataset`."""

from typing import TYPE_CHECKING

import polars as pl

from ...stores.installation import pip_install
from .first_rows import FirstRows

if TYPE_CHECKING:
    from datasets import Dataset  # pyright: ignore[reportMissingTypeStubs]


class RowsFrame(pl.LazyFrame):
    """Rows of a run: a Polars lazy frame that can also become a `datasets.Dataset`.

    The results of `filter`, `select`, `join`, `sort` and the like can, too. As text, or in a
    notebook, it shows its first rows; nothing else is read for that.
    """

    of_table = ""
    """The stored table that these rows are all of; empty for computed rows."""

    def __repr__(self) -> str:
        return FirstRows.of(self, self.of_table).text

    __str__ = __repr__

    def _repr_html_(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return FirstRows.of(self, self.of_table).html

    @classmethod
    def of(cls, frame: pl.LazyFrame, table: str = "") -> "RowsFrame":
        """Return a lazy frame as rows; `table` names it if it is all rows of one."""
        rows = cls.__new__(cls)
        vars(rows).update(vars(frame))
        rows.of_table = table
        return rows

    def to_hf(self) -> "Dataset":
        """Return the rows as a `datasets.Dataset`, as TRL and others take them.

        Raises:
            ImportError: if `datasets` is not installed.
        """
        try:
            from datasets import Dataset
        except ImportError as error:
            raise ImportError(f"to_hf() needs datasets: {pip_install('datasets')}") from error
        return Dataset.from_polars(self.collect())
