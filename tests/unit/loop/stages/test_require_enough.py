from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lpfloop.loop.run.stop import NothingToTrainOn
from lpfloop.loop.stages.train import require_enough
from lpfloop.stores.records import Candidate, Critique, Pair


def run_with(ends: Sequence[str], statuses: Sequence[str] = ()) -> Any:
    """A run that made no pairs: the ends of its samples, the statuses of their critiques."""
    journal = SimpleNamespace(
        count=lambda *_: 0, keys=lambda *_: ["sampled"], is_done=lambda _: True
    )
    samples = [SimpleNamespace(finish_reason=end) for end in ends]
    rows = {
        Candidate: samples,
        Critique: [SimpleNamespace(status=status) for status in statuses],
    }
    config = SimpleNamespace(
        training=SimpleNamespace(min_pairs=4),
        policy=SimpleNamespace(sampling=SimpleNamespace(max_tokens=64)),
    )
    folder = Path("lake/runs/a")
    store = SimpleNamespace(journal=journal, rows=lambda row_type, _: rows[row_type], folder=folder)
    return SimpleNamespace(config=config, store=store)


@pytest.mark.parametrize(
    ("ends", "counted"), [(["length", "stop", "length"], "2 of 3 samples"), (["stop"], "")]
)
def test_cut_samples_are_counted(ends, counted):
    made = cast("Any", SimpleNamespace(row_type=Pair, stages=()))
    with pytest.raises(NothingToTrainOn) as caught:
        require_enough(run_with(ends), 1, made, cast("Any", None))
    assert ("max_tokens=64" in str(caught.value)) is bool(counted)
    assert counted in str(caught.value)


def test_unscored_critiques_are_counted():
    made = cast("Any", SimpleNamespace(row_type=Pair, stages=()))
    run = run_with(["stop"] * 4, ["scored", "overlong", "overlong", "unreadable"])
    with pytest.raises(NothingToTrainOn, match=r"3 of 4 critiques .*2 overlong, 1 unreadable"):
        require_enough(run, 1, made, cast("Any", None))
