"""How much of a probe a policy has lost, and when that is more than chance.

The fall is the mean over prompts of what was passed before less what is passed now. Both policies
answer the same prompts, so its standard error is that of the paired differences.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ....stores.records import Evaluation, Score
from ..statistics.win_rate import difference

PREFIX: Final = "probe:"
"""What the names of probes' benchmarks begin with."""
PASSED, FALL, FALL_OVERALL = "passed", "fall", "fall_overall"
"""Share of prompts passed; what was lost since the policy before, and since the run's first."""


def benchmark_of(probe: str) -> str:
    """Return the benchmark under which a probe's numbers are kept."""
    return f"{PREFIX}{probe}"


def is_probe(benchmark: str) -> bool:
    """Whether numbers under this name are a probe's."""
    return benchmark.startswith(PREFIX)


def falls(metric: str, before: Iterable[Score], after: Sequence[Score]) -> list[Evaluation]:
    """Return the fall of each probe from `before` to `after`, as a number about the latter."""
    held, now = _passed(before), _passed(after)
    numbers = list[Evaluation]()
    for benchmark, values in sorted(now.items()):
        lost = difference(values, held.get(benchmark, {}))
        if lost is not None:
            number = Evaluation(
                iteration=after[0].iteration,
                checkpoint_id=after[0].checkpoint_id,
                benchmark=benchmark,
                metric=metric,
                value=lost.value,
                stderr=lost.standard_error,
                n=lost.n,
            )
            numbers.append(number)
    return numbers


def alarming(number: Evaluation) -> bool:
    """Whether a number is the fall of a probe by more than its standard error."""
    fall = is_probe(number.benchmark) and number.metric in (FALL, FALL_OVERALL)
    return fall and number.stderr is not None and number.value > number.stderr


def told(number: Evaluation) -> str:
    """Say a fall in one sentence."""
    probe = number.benchmark.removeprefix(PREFIX)
    since = "the policy before" if number.metric == FALL else "the run's first policy"
    error = "" if number.stderr is None else f" ± {100 * number.stderr:.1f}"
    return (
        f"alarm: the probe {probe} falls by {100 * number.value:.1f}{error} points since {since} "
        f"(M_{number.iteration}, {number.n} prompts)"
    )


def _passed(scores: Iterable[Score]) -> Mapping[str, dict[str, float]]:
    """Return what was passed, by benchmark and prompt."""
    found: dict[str, dict[str, float]] = {}
    for score in scores:
        if score.metric == PASSED:
            found.setdefault(score.benchmark, {})[score.prompt_id] = score.value
    return found
