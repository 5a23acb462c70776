"""How much of a probe a policy has lost, and whether that is more than chance.

The fall is the mean, over prompts, of the share passed before minus the share now. Both policies
answer the same prompts, so its standard error is the error of the paired differences.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Final

from ....stores.records import Evaluation, Score
from ...data.stage_names import step_of
from ..statistics.intervals import mean_error

PREFIX: Final = "probe:"
"""The prefix of probes' benchmarks."""
PASSED, FALL, FALL_OVERALL = "passed", "fall", "fall_overall"
"""Share of prompts passed; the fall since the previous policy, and since the run's first."""


def benchmark_of(probe: str) -> str:
    """Return the benchmark of a probe's numbers."""
    return f"{PREFIX}{probe}"


def is_probe(benchmark: str) -> bool:
    """Whether a benchmark is a probe."""
    return benchmark.startswith(PREFIX)


def falls(
    metric: str,
    before: Iterable[Score],
    after: Sequence[Score],
    clusters: Mapping[str, str] | None = None,
) -> list[Evaluation]:
    """Return the fall of each probe from `before` to `after`, as the later policy's evaluation.

    The standard error is clustered by `clusters`.
    """
    held, now = _passed_shares(before), _passed_shares(after)
    numbers = list[Evaluation]()
    for benchmark, values in sorted(now.items()):
        first = held.get(benchmark, {})
        common = sorted(first.keys() & values.keys())
        if not common:
            continue
        lost = [first[prompt] - values[prompt] for prompt in common]
        about = [(clusters or {}).get(prompt, prompt) for prompt in common]
        numbers.append(
            Evaluation(
                iteration=after[0].iteration,
                checkpoint_id=after[0].checkpoint_id,
                benchmark=benchmark,
                metric=metric,
                value=fmean(lost),
                stderr=mean_error(lost, about),
                n=len(common),
            )
        )
    return numbers


def alarming(number: Evaluation) -> bool:
    """Whether a number is the fall of a probe by more than its standard error."""
    fall = is_probe(_of_policy(number.benchmark)) and number.metric in (FALL, FALL_OVERALL)
    return fall and number.stderr is not None and number.value > number.stderr


def _of_policy(benchmark: str) -> str:
    """Return the benchmark of M_t, also for the benchmark of a step's policy."""
    named = step_of(benchmark)
    return benchmark if named is None else named[1]


def describe_fall(number: Evaluation) -> str:
    """Return a fall as one sentence."""
    probe, named = _of_policy(number.benchmark).removeprefix(PREFIX), step_of(number.benchmark)
    probe += "" if named is None else f", after step {named[0]},"
    since = "the policy before" if number.metric == FALL else "the run's first policy"
    error = "" if number.stderr is None else f" ± {100 * number.stderr:.1f}"
    return (
        f"the probe {probe} falls by {100 * number.value:.1f}{error} points since {since} "
        f"(M_{number.iteration}, {number.n} prompts)"
    )


def _passed_shares(scores: Iterable[Score]) -> Mapping[str, dict[str, float]]:
    """Return the share passed, by benchmark and prompt."""
    found: dict[str, dict[str, float]] = {}
    for score in scores:
        if score.metric == PASSED:
            found.setdefault(score.benchmark, {})[score.prompt_id] = score.value
    return found
