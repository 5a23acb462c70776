"""Lines and figures of arms over seeds, for the studies' pages."""

from collections.abc import Mapping, Sequence
from math import isfinite

from lpfloop.loop.evaluation.plots import PlottedValue, Series
from lpfloop.loop.studies.claims import SeedEstimate


def seed_line(label: str, curves: Sequence[Mapping[float, float]]) -> Series:
    """Return the mean of several seeds' curves at the points they share, with its interval."""
    points = sorted(set[float].intersection(*(set(curve) for curve in curves)))
    means = [SeedEstimate.of(curve[x] for curve in curves) for x in points]
    banded = all(mean.has_interval for mean in means)
    return Series(
        label=label,
        x=points,
        y=[mean.value for mean in means],
        low=[mean.low for mean in means] if banded else (),
        high=[mean.high for mean in means] if banded else (),
    )


def plotted(label: str, estimate: SeedEstimate) -> PlottedValue:
    """Return an estimate as a point with its interval, which has no length for a single seed."""
    ends = (estimate.low, estimate.high)
    low, high = ends if all(map(isfinite, ends)) else (estimate.value, estimate.value)
    return PlottedValue(label=label, value=estimate.value, low=low, high=high)


def told_at(curves: Sequence[Mapping[float, float]], digits: int = 2) -> list[str]:
    """Return a cell for each point that all seeds' curves share."""
    points = sorted(set[float].intersection(*(set(curve) for curve in curves)))
    return [SeedEstimate.of((c[x] for c in curves), digits=digits).cell() for x in points]
