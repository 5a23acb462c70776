"""Best-of-n: the answer with the highest reward of n samples, for every n at once.

With N scored samples of a prompt, sorted by reward r_(1) <= ... <= r_(N), the best of n of them,
drawn without replacement, is the i-th with probability C(i-1, n-1) / C(N, n). So N samples give an
unbiased estimate of the result of any n <= N, for the reward that chooses and for every other
number: if the true score falls while the reward rises, the reward is over-optimised (AlpacaFarm,
Section 4.4).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ...policies.online.truncation_penalty import apply_rule
from ...stores.journal_reader import Unit
from ...stores.keys import Json, row_id
from ...stores.records import Candidate, Evaluation, Reward
from ...stores.schemas import RowsByType
from ..lake.statistics.clustered_error import mean_error
from ..run.handles import Best, Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .assess import TRUE_SCORE, load_oracle
from .metrics import clustered_params, given_clusters, number_of

BEST_OF_N = Verb("best_of_n")
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


def curve(it: Iteration, best: Best, *, most: int) -> None:
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
            for samples_of in by_chunk(it, best)
            for prompt_id, samples in samples_of.items()
        ]
        return {Evaluation: list(_evaluations(it, found, most))}

    keyed = it.run.verifier.params(clustered_params(params, clusters))
    work = it.whole(BEST_OF_N, keyed, best.candidates, best.rewards)
    it.run.make(it.number, "curve", work, make)


def best_answers(it: Iteration, best: Best) -> Rows[Candidate]:
    """Commit the best sample of each prompt once more, as the answer that best-of-n gives."""

    def make(unit: Unit) -> RowsByType:
        found = ranked_chunk(it, best, unit.chunk)
        return {Candidate: [answer("best", unit.key, of.candidates[-1]) for of in found.values()]}

    work = it.work(BEST_OF_N, "answers", best.candidates, best.rewards)
    return it.rows(Candidate, "best", work, make)


def answer(stage: str, key: str, sample: Candidate) -> Candidate:
    """Return a sample as the chosen answer: a separate row, made from the sample."""
    identity = row_id("cand", [stage, key, sample.candidate_id])
    return replace(sample, candidate_id=identity, parent_id=sample.candidate_id)


def by_chunk(it: Iteration, best: Best) -> Iterator[dict[str, RankedSamples]]:
    """Yield the ranked samples of each chunk, by prompt."""
    for chunk in range(best.candidates.chunks):
        yield ranked_chunk(it, best, chunk)


def ranked_chunk(it: Iteration, best: Best, chunk: int) -> dict[str, RankedSamples]:
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
        told = [(cluster, by_n[n]) for cluster, by_n in found if n in by_n]
        for metric in sorted({name for _, value in told for name in value}):
            sample = [(cluster, v[metric]) for cluster, v in told if metric in v]
            yield _evaluation(it, n, EXPECTED + metric, sample)
        if told:
            bound = math.log(n) - (n - 1) / n
            yield replace(_evaluation(it, n, DIVERGENCE, [("", bound)]), n=len(told))


def _evaluation(
    it: Iteration, n: int, metric: str, sample: Sequence[tuple[str, float]]
) -> Evaluation:
    clusters, values = zip(*sample, strict=True)
    error = mean_error(values, clusters)
    return number_of(it, benchmark(n), metric, fmean(values), stderr=error, n=len(sample))
