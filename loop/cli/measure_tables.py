"""The tables of `lpfloop status` on the quality of the critic and on probes."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from ...stores.records import Evaluation
from ..data.splits import HELD_OUT
from ..data.text import one_line, print_wrapped
from ..lake.query.critic_scores import ALL, DRAFTS
from ..lake.query.forgetting import FALL, FALL_OVERALL, PASSED, PREFIX, alarming, is_probe
from ..lake.query.row_table import print_texts
from ..lake.statistics.intervals import share_interval

CRITIC = {
    "approval": "passed",
    "verified": "right",
    "precision": "precision",
    "recall": "recall",
    "auroc": "ratings",
    "reward_auroc": "reward",
}
"""The figures of a critic, with their headings: of ratings and rewards it is the AUROC."""
TASK = 24


TITLE = "The critic against the verifier, in percent (last: AUROC of ratings and reward)"


def print_critic(
    console: Console, iterations: Sequence[Mapping[str, Any]], *, wide: bool = False
) -> None:
    """Print the quality of the critic by task and model, if it was measured.

    `iterations` are the iterations of a run's status. Of held-out answers it shows the first and
    the last model's; if `wide`, all answers of all models.
    """
    every = [(turn["iteration"], score) for turn in iterations for score in turn["critic"]]
    reported = [number for number, score in every if score["benchmark"] == HELD_OUT]
    ends = {min(reported), max(reported)} if reported and not wide else None
    scores: list[dict[str, Any]] = [
        {"answers": _answers_of(number, score["benchmark"]), **score}
        for number, score in every
        if ends is None or (number in ends and score["benchmark"] == HELD_OUT)
    ]
    if not scores:
        return
    shares = [name for name in CRITIC if any(score[name] is not None for score in scores)]
    rows = [
        (
            one_line(score["task"], limit=TASK),
            score["answers"],
            f"{score['n']:,}",
            *(_percent(score[name]) for name in shares),
        )
        for score in sorted(scores, key=lambda s: (s["task"] == ALL, s["task"], s["benchmark"]))
    ]
    headings = ("Task", "Answers", "n", *(CRITIC[name] for name in shares))
    console.print()
    print_wrapped(console, TITLE)
    print_texts(console, headings, rows, left=2)


def _answers_of(iteration: int, benchmark: str) -> str:
    """Return whose answers were judged: M_t's, or the drafts of iteration t."""
    return f"{DRAFTS} {iteration}" if benchmark == DRAFTS else f"M_{iteration}, {benchmark}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


NAME = 60
"""The most characters of a probe's name."""
PROBES = "Probes passed, % and 95 % interval (fell: an alarm, ± standard error)"


def print_probes(console: Console, evaluations: Sequence[Evaluation]) -> None:
    """Print the share of each probe passed, if there are any; falls with an alarm are marked."""
    probed = [e for e in evaluations if is_probe(e.benchmark)]
    if not probed:
        return
    by_name = {(e.iteration, e.benchmark, e.metric): e for e in probed}
    probes = sorted({e.benchmark for e in probed})
    rows = [
        (f"M_{number}", *(_probe_share(by_name, number, name) for name in probes))
        for number in sorted({e.iteration for e in probed})
    ]
    headings = ("Model", *(one_line(name.removeprefix(PREFIX), limit=NAME) for name in probes))
    console.print()
    print_wrapped(console, PROBES)
    print_texts(console, headings, rows, left=1)


def _probe_share(
    by_name: Mapping[tuple[int, str, str], Evaluation], number: int, probe: str
) -> str:
    """Return the share of a probe that a model passed, and its fall if that is an alarm."""
    passed = by_name.get((number, probe, PASSED))
    if passed is None:
        return "-"
    within = share_interval(passed.value, passed.stderr, passed.n)
    interval = "" if within is None else " [{:.1f}, {:.1f}]".format(*(100 * end for end in within))
    lost = [by_name.get((number, probe, metric)) for metric in (FALL, FALL_OVERALL)]
    alarms = [e for e in lost if e is not None and alarming(e)]
    fell = f", fell {_fall(alarms[-1])}" if alarms else ""
    return f"{100 * passed.value:.1f}{interval}{fell}"


def _fall(evaluation: Evaluation) -> str:
    error = "" if evaluation.stderr is None else f" ±{100 * evaluation.stderr:.1f}"
    return f"{100 * evaluation.value:.1f}{error}"
