"""How rows of different lengths share forward passes, in which the short ones are padded.

By rows: as many as are configured, of one batch alone, so that a batch's scores are a function of
the batch, on a CPU to the last bit. By tokens: as many as their padded tokens allow, of whatever
has arrived, so that a pass of short rows keeps a GPU as busy as one of long rows.
"""

from collections.abc import Iterator, Sequence


def by_rows(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Give the places of the rows of each pass: the shortest first, `most` at a time."""
    order = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    yield from (order[start : start + most] for start in range(0, len(order), most))


def by_tokens(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Give the places of the rows of each pass: the longest first, `most` padded tokens at a time.

    A row of more tokens than that has a pass of its own.
    """
    order = sorted(range(len(lengths)), key=lambda place: (-lengths[place], place))
    start = 0
    while start < len(order):
        # Padded to the longest, which comes first.
        rows = max(1, most // lengths[order[start]])
        yield order[start : start + rows]
        start += rows
