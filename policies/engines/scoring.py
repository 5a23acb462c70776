"""Scoring conversations in passes: which are read, which share one, whose result is whole.

What scores, and how rows are put together (see `passes`), is said by whoever holds the model.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from .engine import ScoreBatch, ScoreRequest, ScoreResult
from .feed import arrived

Tokens = Sequence[int]


@dataclass(slots=True)
class _ScoredBatch:
    """A batch, the tokens of its conversations, and the scores that are known."""

    batch: ScoreBatch
    rows: list[Tokens]
    scores: list[float | None] = field(init=False)
    missing: int = 0

    def __post_init__(self) -> None:
        self.scores = [None] * len(self.rows)

    def settle(self, place: int, score: float) -> bool:
        """Note a score; return whether it was the last."""
        self.scores[place] = score
        self.missing -= 1
        return not self.missing

    @property
    def result(self) -> ScoreResult:
        return ScoreResult(key=self.batch.key, scores=tuple(self.scores))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringPasses:
    """How conversations become rows of tokens, and those are scored.

    `longest` is the length of a row that can be scored. `ahead` is how many tokens are put together
    of what has arrived; with 0 each batch is by itself. `passes` gives the places of the rows of
    each pass, by their lengths; `forward` scores the rows of one.
    """

    tokens: Callable[[ScoreRequest], Tokens]
    longest: int
    ahead: int
    passes: Callable[[Sequence[int]], Iterable[Sequence[int]]]
    forward: Callable[[Sequence[Tokens]], Sequence[float]]

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Yield each batch when it is whole; a conversation that does not fit gets None."""
        source = iter(batches)
        while gathered := self._gathered(source):
            yield from self._scored(gathered)

    def _gathered(self, source: Iterator[ScoreBatch]) -> list[_ScoredBatch]:
        """Wait for a batch, and take what has arrived besides."""
        found: list[_ScoredBatch] = []
        held = 0
        while not found or (held < self.ahead and arrived(source)):
            batch = next(source, None)
            if batch is None:
                break
            rows = [self.tokens(request) for request in batch.requests]
            found.append(_ScoredBatch(batch, rows))
            held += sum(map(len, rows))
        return found

    def _scored(self, gathered: Sequence[_ScoredBatch]) -> Iterator[ScoreResult]:
        fitting = [
            (of, place)
            for of in gathered
            for place, row in enumerate(of.rows)
            if 0 < len(row) <= self.longest
        ]
        for of, _ in fitting:
            of.missing += 1
        yield from (of.result for of in gathered if not of.missing)
        for group in self.passes([len(of.rows[place]) for of, place in fitting]):
            values = self.forward([fitting[n][0].rows[fitting[n][1]] for n in group])
            for number, value in zip(group, values, strict=True):
                of, place = fitting[number]
                if of.settle(place, value):
                    yield of.result
