"""Best-of-n: the answer with the highest reward of n samples, for every n at once.

With N scored samples of a prompt, sorted by reward r_(1) <= ... <= r_(N), the best of n of them,
drawn without replacement, is the i-th with probability C(i-1, n-1) / C(N, n). So N samples give an
unbiased estimate of the result of any n <= N, for the reward that chooses and for every other
number: if the true score falls while the reward rises, the reward is over-optimised (AlpacaFarm,
Section 4.4).

The win-rate (Figures 5 and 12) is of the n samples of a prompt whose ids, which are random, come
first: an expectation over all choices of n would need a comparison of every sample. A sample that
is the best for several n is compared once, and so is a text that was drawn twice.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ...policies.online.truncation_penalty import apply_rule
from ...stores.journal_reader import Unit
from ...stores.keys import Json, row_id
from ...stores.records import Candidate, Evaluation, Preference, Reward, Score
from ...stores.schemas import RowsByType
from ..data.splits import HELD_OUT
from ..lake.statistics.intervals import mean_error
from ..run.handles import Best, Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .assess import (
    ASSESS,
    TRUE_SCORE,
    EvalSet,
    assess,
    compare_with_reference,
    load_oracle,
)
from .length_control import at_equal_lengths, win_scores
from .metrics import clustered_params, every_row, given_clusters, number_of, summarise

BEST_OF_N, CHOOSE = Verb("best_of_n"), Verb("best_of_fewer")
FEWER = "best:fewer"
"""The stage of the answers that are the best of fewer samples, and not of all."""
EXPECTED = "expected_"
"""The prefix of the curve's metrics: they are expectations over the samples."""
DIVERGENCE = "kl_bound"
DRAWN = ("stop", "length")
"""The finish reasons of samples that could be drawn."""

Metrics = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedSamples:
    """A prompt's scored samples, worst first."""

    candidates: tuple[Candidate, ...]
    rewards: tuple[float, ...]


def benchmark(n: int) -> str:
    """Return the benchmark of best-of-n."""
    return f"best-of-{n}"


def counts(most: int) -> list[int]:
    """Return the n of the curve: 1, 2, 4, ... and `most`."""
    powers = [2**k for k in range(most.bit_length()) if 2**k < most]
    return [*powers, most]


def weights(total: int, n: int) -> list[float]:
    """Return P(the i-th smallest of `total` is the largest of n of them), for i = 1 .. total.

    Raises:
        ValueError: unless 1 <= n <= total.
    """
    if not 1 <= n <= total:
        raise ValueError(f"the best of {n} cannot be estimated from {total}")
    found = [0.0] * total
    found[-1] = n / total
    for i in range(total - 1, 0, -1):
        # One step of Pascal's triangle: each binomial from the one above it.
        found[i - 1] = found[i] * max(0, i - n + 1) / i
    return found


def rank_samples(
    candidates: Sequence[Candidate], rewards: Sequence[Reward]
) -> dict[str, RankedSamples]:
    """Return each prompt's scored samples, by reward; equal rewards by id, which is random.

    Truncated samples rank below all whole ones, by reward among themselves.
    """
    scores = {row.candidate_id: row.score for row in rewards}
    found: dict[str, list[tuple[float, Candidate]]] = {}
    for candidate in candidates:
        score = scores.get(candidate.candidate_id)
        if score is not None and candidate.finish_reason in DRAWN:
            found.setdefault(candidate.prompt_id, []).append((score, candidate))
    return {
        prompt_id: RankedSamples(
            candidates=tuple(candidate for _, candidate in scored),
            rewards=tuple(score for score, _ in scored),
        )
        for prompt_id, offered in found.items()
        for scored in [_worst_first(offered)]
    }


def _worst_first(offered: Sequence[tuple[float, Candidate]]) -> list[tuple[float, Candidate]]:
    """Sort a prompt's samples by reward, truncated ones below all others."""
    ended = [candidate.finish_reason == "stop" for _, candidate in offered]
    worth = apply_rule([score for score, _ in offered], ended, "below")
    every = zip(worth, offered, strict=True)
    ordered = sorted(every, key=lambda one: (one[0], one[1][0], one[1][1].candidate_id))
    return [sample for _, sample in ordered]


def expectations(values: Sequence[Metrics], most: int) -> dict[int, dict[str, float]]:
    """Return for each n the expected metrics of the best of n, from values sorted by reward.

    Metrics that a sample lacks are left out, as is n above the number of samples.
    """
    shared = sorted(set[str].intersection(*(set(v) for v in values))) if values else []
    return {
        n: {
            name: math.fsum(w * v[name] for w, v in zip(chances, values, strict=True))
            for name in shared
        }
        for n in counts(most)
        if n <= len(values)
        for chances in [weights(len(values), n)]
    }


def _curve(it: Iteration, best: Best, *, most: int) -> None:
    """Commit the results of best-of-n for n = 1, 2, 4 .. most: means over prompts."""
    oracle = it.run.config.assessment.oracle
    clusters = given_clusters(prompt for chunk in it.held_out.chunks for prompt in chunk)
    params: Mapping[str, Json] = {"most": most, "oracle": oracle, "policy": it.policy.params}

    def make(_: Unit) -> RowsByType:
        found = [
            (
                clusters.get(prompt_id, prompt_id),
                expectations(_values(it, prompt_id, samples), most),
            )
            for samples_of in _by_chunk(it, best)
            for prompt_id, samples in samples_of.items()
        ]
        return {Evaluation: list(_evaluations(it, found, most))}

    keyed = it.run.verifier.params(clustered_params(params, clusters))
    work = it.whole(BEST_OF_N, keyed, best.candidates, best.rewards)
    it.run.make(it.number, "curve", work, make)


def _best_answers(it: Iteration, best: Best) -> Rows[Candidate]:
    """Commit the best sample of each prompt once more, as the answer that best-of-n gives."""

    def make(unit: Unit) -> RowsByType:
        found = _ranked_chunk(it, best, unit.chunk)
        return {Candidate: [_answer("best", unit.key, of.candidates[-1]) for of in found.values()]}

    work = it.work(BEST_OF_N, "answers", best.candidates, best.rewards)
    return it.rows(Candidate, "best", work, make)


def _answer(stage: str, key: str, sample: Candidate) -> Candidate:
    """Return a sample as the chosen answer: a separate row, made from the sample."""
    identity = row_id("cand", [stage, key, sample.candidate_id])
    return replace(sample, candidate_id=identity, parent_id=sample.candidate_id)


def _by_chunk(it: Iteration, best: Best) -> Iterator[dict[str, RankedSamples]]:
    """Yield the ranked samples of each chunk, by prompt."""
    for chunk in range(best.candidates.chunks):
        yield _ranked_chunk(it, best, chunk)


def _ranked_chunk(it: Iteration, best: Best, chunk: int) -> dict[str, RankedSamples]:
    """Return the scored samples of a chunk's prompts as the run ranks them."""
    samples, rewards = it.chunk(best.candidates, chunk), it.chunk(best.rewards, chunk)
    return rank_samples(samples, rewards)


def _values(it: Iteration, prompt_id: str, samples: RankedSamples) -> list[Metrics]:
    """Return the metrics of each sample of a prompt."""
    prompt, path = it.run.prompts[prompt_id], it.run.config.assessment.oracle
    oracle = None if path is None else load_oracle(path)
    verdicts = it.run.verifier.verify([(prompt, c.text) for c in samples.candidates])
    values = list[Metrics]()
    for candidate, reward, verdict in zip(
        samples.candidates, samples.rewards, verdicts, strict=True
    ):
        value = {"reward": reward, "mean_length": float(candidate.completion_tokens)}
        value |= dict(verdict.metrics)
        true = None if oracle is None else oracle(prompt.instruction, candidate.text)
        values.append(value if true is None else {**value, TRUE_SCORE: true})
    return values


def _evaluations(
    it: Iteration, found: Sequence[tuple[str, Mapping[int, Metrics]]], most: int
) -> Iterator[Evaluation]:
    """Yield the means over prompts, and the bound of the KL: log n - (n-1)/n.

    `found` has the cluster and the values of each prompt.
    """
    for n in counts(most):
        clusters = [(cluster, by_n[n]) for cluster, by_n in found if n in by_n]
        for metric in sorted({name for _, value in clusters for name in value}):
            sample = [(cluster, v[metric]) for cluster, v in clusters if metric in v]
            yield _evaluation(it, n, EXPECTED + metric, sample)
        if clusters:
            bound = math.log(n) - (n - 1) / n
            yield replace(_evaluation(it, n, DIVERGENCE, [("", bound)]), n=len(clusters))


def _evaluation(
    it: Iteration, n: int, metric: str, sample: Sequence[tuple[str, float]]
) -> Evaluation:
    clusters, values = zip(*sample, strict=True)
    error = mean_error(values, clusters)
    return number_of(it, benchmark(n), metric, fmean(values), stderr=error, n=len(sample))


def measure_best_of(it: Iteration, best: Best, *, most: int) -> None:
    """Measure the best of n answers, n = 1, 2, 4 .. most, and assess the best of the largest n.

    For smaller n only the win-rate is measured; without a reference for win-rates, nothing is.
    """
    _curve(it, best, most=most)
    eval_set = EvalSet(prompts=it.held_out, name=HELD_OUT, benchmark=benchmark(most))
    of_all = _best_answers(it, best)
    measured = assess(it, of_all, eval_set)
    if measured.outputs is None or measured.preferences is None:
        return
    below = counts(most)[:-1]
    fewer = _best_of_fewer(it, best, below)
    compared = compare_with_reference(it, eval_set, fewer, measured.outputs)
    judged = ((of_all, measured.preferences), (fewer, compared))
    for n in below:
        _measure_win_rate(
            it, best, replace(eval_set, benchmark=benchmark(n)), n, measured.outputs, judged
        )


def _measure_win_rate(
    it: Iteration,
    best: Best,
    eval_set: EvalSet,
    n: int,
    outputs: Rows[Candidate],
    judged: Sequence[tuple[Rows[Candidate], Rows[Preference]]],
) -> None:
    """Commit the win-rates of the best of n; `judged` are answers, each with its comparisons."""

    def make(_: Unit) -> RowsByType:
        scored = [of for chunk in _by_chunk(it, best) for of in chunk.values()]
        texts = [c for of in scored if (c := best_of_few(of, n)) is not None]
        verdicts = _verdicts(it, judged)
        matched = [(c, verdicts[c.prompt_id, c.text]) for c in texts]
        read = [row for _, row in matched if row.preferred is not None]
        scores = list(win_scores(it, eval_set.benchmark, read))
        lengths = {row.second_id: len(c.text) for c, row in matched}
        lengths |= {row.candidate_id: len(row.text) for row in every_row(it, outputs)}
        fitted = at_equal_lengths(it, eval_set.benchmark, eval_set.clusters, read, lengths)
        return {Score: scores, Evaluation: [*summarise(scores, eval_set.clusters), *fitted]}

    params = clustered_params({"best_of": n}, eval_set.clusters)
    read = [rows for both in judged for rows in both]
    work = it.whole(ASSESS, params, best.candidates, best.rewards, outputs, *read)
    it.run.make(it.number, f"assess:{eval_set.benchmark}", work, make)


def _verdicts(
    it: Iteration, judged: Sequence[tuple[Rows[Candidate], Rows[Preference]]]
) -> dict[tuple[str, str], Preference]:
    """Return the preference about each answer, by its prompt and text."""
    found = dict[tuple[str, str], Preference]()
    for answers, preferences in judged:
        by_second = {row.second_id: row for row in every_row(it, preferences)}
        for row in every_row(it, answers):
            found[row.prompt_id, row.text] = by_second[row.candidate_id]
    return found


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
        for samples in _ranked_chunk(it, best, unit.chunk).values():
            of_all = samples.candidates[-1].text
            for n in below:
                chosen = best_of_few(samples, n)
                if chosen is not None and chosen.text != of_all:
                    found.setdefault((chosen.prompt_id, chosen.text), chosen)
        return {Candidate: [_answer(FEWER, unit.key, sample) for sample in found.values()]}

    params: Json = {"below": list(below)}
    work = it.work(CHOOSE, params, best.candidates, best.rewards)
    return it.rows(Candidate, FEWER, work, make)
