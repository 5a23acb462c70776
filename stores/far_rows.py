# pyright: basic
"""The rows of sealed tables in a bucket, read by a query engine piece by piece.

An engine that requests columns and a filter gets them batch by batch, so no column is ever in
memory as a whole. Columns that only the filtered rows need may be large (texts), and the ids in a
filter are spread over all row groups; so the filter's columns are read first, and the others only
of the row groups with matching rows.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs

from .bucket import AT_ONCE

GROUPS_AHEAD, BATCHES_AHEAD = 16, 4
"""How many row groups, and batches of each, are fetched ahead of the engine."""
GROUP = "__fragment_index"
"""Arrow's column for the number of a row's fragment, here its row group."""


class FarRows(pads.FileSystemDataset):
    """Sealed tables of one schema; columns that a file lacks are null."""

    def scanner(self, *args: Any, **options: Any) -> pads.Scanner:
        """Return a scanner of the requested columns and rows."""
        groups = self._groups()
        if options.get("filter") is not None:
            groups = self._holding(groups, options["filter"])
        ahead = {"batch_readahead": BATCHES_AHEAD, "fragment_readahead": GROUPS_AHEAD}
        return self._only(groups).scanner(*args, **{**options, **ahead})

    def _groups(self) -> list[pads.Fragment]:
        """Return the row groups; the metadata of the files are fetched once."""
        files = list(self.get_fragments())
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda file: file.ensure_complete_metadata(), files))
        return [group for file in files for group in file.split_by_row_group()]

    def _holding(self, groups: Sequence[pads.Fragment], wanted: pads.Expression) -> list[Any]:
        """Return the row groups with rows that match a filter."""
        found = self._only(groups).scanner(
            columns=[GROUP], filter=wanted, fragment_readahead=AT_ONCE, batch_readahead=1
        )
        numbers = {n for batch in found.to_batches() for n in batch.column(0).unique().to_pylist()}
        return [groups[number] for number in sorted(numbers)]

    def _only(self, groups: Sequence[pads.Fragment]) -> pads.Dataset:
        return pads.FileSystemDataset(list(groups), self.schema, self.format, self.filesystem)


def far_rows(
    filesystem: pafs.FileSystem, files: Sequence[tuple[str, int]], schema: pa.Schema
) -> FarRows:
    """Return the rows of files, whose sizes are given to save requests."""
    if pa.io_thread_count() < AT_ONCE:
        pa.set_io_thread_count(AT_ONCE)
    form = pads.ParquetFileFormat()
    fragments = [form.make_fragment(place, filesystem, file_size=size) for place, size in files]
    return FarRows(fragments, schema, form, filesystem)
