"""The win-rate of the best of n answers, for every n of the curve (AlpacaFarm, Figures 5 and 12).

The best of n is taken from the n samples of a prompt whose ids, which are random, come first. An
expectation over all choices of n, as in `best_of_curve`, would need a comparison of every sample. A
sample that is the best for several n is compared once, and so is a text that was drawn twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Evaluation, Preference, Score
from ...stores.schemas import RowsByType
from ..data.splits import HELD_OUT
from ..run.handles import Best, Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .assess import ASSESS, EvalSet, assess, compare_with_reference, every_row
from .best_of_curve import (
    RankedSamples,
    answer,
    benchmark,
    best_answers,
    by_chunk,
    counts,
    curve,
    ranked_chunk,
)
from .fitted_win_rates import WIN_RATE, WON, at_equal_lengths
from .metrics import clustered_params, score_of, summarise

FEWER = "best:fewer"
"""The stage of the answers that are the best of fewer samples, and not of all."""
CHOOSE = Verb("best_of_fewer")

Verdicts = Mapping[tuple[str, str], Preference]
"""The preference about an answer, by its prompt and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfEach:
    """The best of n samples, for n = 1, 2, 4, ... below `most`, and the best of all.

    `of_all` has the best of all samples and `fewer` the others, each with its comparisons.
    """

    it: Iteration
    best: Best
    eval_set: EvalSet
    outputs: Rows[Candidate]
    of_all: tuple[Rows[Candidate], Rows[Preference]]
    fewer: tuple[Rows[Candidate], Rows[Preference]]

    def measure(self, n: int) -> None:
        """Commit the win-rates of the best of n."""
        it, eval_set = self.it, replace(self.eval_set, benchmark=benchmark(n))

        def make(_: Unit) -> RowsByType:
            scored = [of for chunk in by_chunk(it, self.best) for of in chunk.values()]
            texts = [c for of in scored if (c := best_of_few(of, n)) is not None]
            verdicts = self._verdicts()
            asked = [(c, verdicts[c.prompt_id, c.text]) for c in texts]
            read = [row for _, row in asked if row.preferred is not None]
            scores = [_score(it, eval_set.benchmark, row) for row in read]
            lengths = {row.second_id: len(c.text) for c, row in asked}
            lengths |= {row.candidate_id: len(row.text) for row in every_row(it, self.outputs)}
            fitted = at_equal_lengths(it, eval_set.benchmark, eval_set.clusters, read, lengths)
            return {Score: scores, Evaluation: [*summarise(scores, eval_set.clusters), *fitted]}

        params = clustered_params({"best_of": n}, eval_set.clusters)
        handles = (self.best.candidates, self.best.rewards, self.outputs)
        work = it.whole(ASSESS, params, *handles, *self.of_all, *self.fewer)
        it.run.make(it.number, f"assess:{eval_set.benchmark}", work, make)

    def _verdicts(self) -> Verdicts:
        it = self.it
        found = dict[tuple[str, str], Preference]()
        for answers, preferences in (self.of_all, self.fewer):
            said = {row.second_id: row for row in every_row(it, preferences)}
            for row in every_row(it, answers):
                found[row.prompt_id, row.text] = said[row.candidate_id]
        return found


def measure_best_of(it: Iteration, best: Best, *, most: int) -> None:
    """Measure the best of n answers, n = 1, 2, 4 .. most, and assess the best of the largest n.

    For smaller n only the win-rate is measured; without a reference for win-rates, nothing is.
    """
    curve(it, best, most=most)
    eval_set = EvalSet(prompts=it.held_out, name=HELD_OUT, benchmark=benchmark(most))
    of_all = best_answers(it, best)
    said = assess(it, of_all, eval_set)
    if said.outputs is None or said.preferences is None:
        return
    below = counts(most)[:-1]
    fewer = _best_of_fewer(it, best, below)
    each = BestOfEach(
        it=it,
        best=best,
        eval_set=eval_set,
        outputs=said.outputs,
        of_all=(of_all, said.preferences),
        fewer=(fewer, compare_with_reference(it, eval_set, fewer, said.outputs)),
    )
    for n in below:
        each.measure(n)


def best_of_few(samples: RankedSamples, n: int) -> Candidate | None:
    """Return the best of n of a prompt's scored samples; None if it has fewer.

    The samples of a smaller n are a subset of a larger n's, in any order of the rows.
    """
    if n > len(samples.candidates):
        return None
    chosen = set(sorted(c.candidate_id for c in samples.candidates)[:n])
    return next(c for c in reversed(samples.candidates) if c.candidate_id in chosen)


def _best_of_fewer(it: Iteration, best: Best, below: Sequence[int]) -> Rows[Candidate]:
    """Commit, as answers, the samples that are the best of fewer, each text of a prompt once."""

    def make(unit: Unit) -> RowsByType:
        found = dict[tuple[str, str], Candidate]()
        for samples in ranked_chunk(it, best, unit.chunk).values():
            of_all = samples.candidates[-1].text
            for n in below:
                chosen = best_of_few(samples, n)
                if chosen is not None and chosen.text != of_all:
                    found.setdefault((chosen.prompt_id, chosen.text), chosen)
        return {Candidate: [answer(FEWER, unit.key, sample) for sample in found.values()]}

    params: Json = {"below": list(below)}
    work = it.work(CHOOSE, params, best.candidates, best.rewards)
    return it.rows(Candidate, FEWER, work, make)


def _score(it: Iteration, benchmark: str, row: Preference) -> Score:
    assert row.preferred is not None  # noqa: S101 -- unread ones have no score
    won = WON[row.preferred]
    return score_of(it, benchmark, WIN_RATE, won, prompt=row.prompt_id, candidate=row.second_id)
