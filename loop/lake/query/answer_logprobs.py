"""How probable the answers of a run's pairs were before and after a training on pairs.

Read from the training's step metrics. DPO raises the chosen answer above the rejected one, and can
do so while both become less probable (likelihood displacement, arXiv 2410.08847).
"""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import polars as pl

from ....policies.trainers.training_fit import SURVIVAL
from ....policies.trainers.work_folder import BELOW, TOKEN
from ....stores.keys import Json
from ....stores.lake import RunReader

MANY = 0.25
"""Warn if more than this share of chosen answers is less probable than by the reference.

The share is over all pairs: if one task of three sinks, the others hide two thirds of it.
"""
TAIL = 4
"""Figures are means over the last quarter of the steps."""


def sinking_warning(iteration: int, found: Mapping[str, Any]) -> str | None:
    """Return a sentence if a training made many of its chosen answers less probable."""
    below = found["chosen_below_reference"]
    if below <= MANY:
        return None
    return (
        f"DPO of iteration {iteration} left {below:.0%} of its chosen answers less probable than "
        "they were by its reference: training.dpo.chosen_penalty=5 or training.dpo.sft_weight=1 "
        "hold them up (docs/gpus.md#training-that-fits)"
    )


def format_logprobs(found: Mapping[str, Any]) -> str:
    """Return `answer_logprobs` as a line."""
    sides = (
        f"{side} {found[side]['reference']:.3f} -> {found[side]['trained']:.3f}"
        for side in ("chosen", "rejected")
    )
    return (
        f"DPO, nats a token by reference -> by M_t: {', '.join(sides)}; "
        f"{found['chosen_below_reference']:.0%} of chosen answers fell below the reference"
    )


def update_survival(run: RunReader, iteration: int) -> float | None:
    """Return the share of an iteration's update that is left in its published policy."""
    rows = run.scan("statistics", iteration=iteration).filter(pl.col("metric") == SURVIVAL)
    found = rows.sort("step").select("value").collect()
    return None if found.is_empty() else float(found["value"][-1])


def format_survival(share: float) -> str:
    """Return `update_survival` as a line."""
    return f"update survival: {share:.1%} of what training changed is in the published weights"


def answer_logprobs(run: RunReader, iteration: int) -> dict[str, Json] | None:
    """Return nats a token of both sides by the reference policy and by the trained one.

    They are means over the last quarter of the steps. `chosen_below_reference` is the share of
    pairs whose chosen answer is less probable than by the reference. None if not recorded.
    """
    names = (*TOKEN, BELOW)
    rows = run.scan("statistics", iteration=iteration).filter(pl.col("metric").is_in(names))
    steps = rows.select("step", "metric", "value").collect()
    if steps.is_empty():
        return None
    last = int(max(steps["step"]))
    tail = steps.filter(pl.col("step") > last - math.ceil(last / TAIL))
    mean = {name: fmean(tail.filter(metric=name)["value"]) for name in names}
    chosen, ref_chosen, rejected, ref_rejected = (mean[name] for name in TOKEN)
    return {
        "chosen": {"reference": ref_chosen, "trained": chosen},
        "rejected": {"reference": ref_rejected, "trained": rejected},
        "chosen_below_reference": mean[BELOW],
    }
