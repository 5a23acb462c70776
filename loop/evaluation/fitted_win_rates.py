"""Shares of wins that comparisons give a policy, and the win-rate that is fitted to all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ...stores.records import Evaluation, Preference, Score
from ..run.iteration import Iteration
from ..run.run_warnings import RunWarnings
from .metrics import Clusters, number_of, score_of

WIN_RATE, LENGTH_CONTROLLED = "win_rate", "length_controlled_win_rate"
WON: Mapping[str, float] = {"first": 0.0, "tie": 0.5, "second": 1.0}
"""The policy's share of the win; its answer is the second."""


def win_scores(it: Iteration, benchmark: str, preferences: Iterable[Preference]) -> Iterator[Score]:
    """Yield the score of each answer that was compared, unless the verdict was not read."""
    for row in preferences:
        if row.preferred is not None:
            won, prompt, answer = WON[row.preferred], row.prompt_id, row.second_id
            yield score_of(it, benchmark, WIN_RATE, won, prompt=prompt, candidate=answer)


def at_equal_lengths(
    it: Iteration,
    benchmark: str,
    clusters: Clusters,
    preferences: Sequence[Preference],
    lengths: Mapping[str, int],
) -> list[Evaluation]:
    """Return the win-rate at equal lengths, from 0 to 1.

    `lengths` are the compared answers' lengths, in letters.
    """
    from .length_control import Compared, Uncontrolled, length_controlled

    read = [row for row in preferences if row.preferred is not None]
    if not read:
        return []
    compared = Compared(
        won=[WON[row.preferred] for row in read if row.preferred is not None],
        longer_by=[lengths[row.second_id] - lengths[row.first_id] for row in read],
        prompts=[row.prompt_id for row in read],
        clusters=[clusters.get(row.prompt_id, row.prompt_id) for row in read],
    )
    found = length_controlled(compared)
    remarks = RunWarnings(it.run.store, it.number, f"assess:{benchmark}")
    if isinstance(found, Uncontrolled):
        remarks.note({f"no win-rate at equal lengths: {found.reason}"})
        return []
    remarks.note({f"the win-rate at equal lengths: {remark}" for remark in found.remarks})
    rate, error = found.win_rate, found.standard_error
    return [number_of(it, benchmark, LENGTH_CONTROLLED, rate, stderr=error, n=len(read))]
