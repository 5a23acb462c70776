"""The results of a run's probes as a table for a terminal."""

from collections.abc import Mapping, Sequence

from rich.console import Console

from ...stores.records import Evaluation
from ..data.sanitize import one_line
from ..lake.query.forgetting import FALL, FALL_OVERALL, PASSED, PREFIX, alarming, is_probe
from ..lake.query.row_table import print_columns, text_columns
from ..lake.statistics.share_interval import share_interval

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
    print_columns(console, text_columns(headings, rows), title=PROBES)


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
    fell = f", fell {_percent(alarms[-1])}" if alarms else ""
    return f"{100 * passed.value:.1f}{interval}{fell}"


def _percent(evaluation: Evaluation) -> str:
    error = "" if evaluation.stderr is None else f" ±{100 * evaluation.stderr:.1f}"
    return f"{100 * evaluation.value:.1f}{error}"
