from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.stages.train import require_enough
from lpfloop.stores.records import Pair


def run_with(ends: Sequence[str]) -> Any:
    """A run that made no pairs from samples that ended for these reasons."""
    journal = SimpleNamespace(
        count=lambda *_: 0, keys=lambda *_: ["sampled"], is_done=lambda _: True
    )
    rows = [SimpleNamespace(finish_reason=end) for end in ends]
    config = SimpleNamespace(
        training=SimpleNamespace(min_pairs=4),
        policy=SimpleNamespace(sampling=SimpleNamespace(max_tokens=64)),
    )
    folder = Path("lake/runs/a")
    store = SimpleNamespace(journal=journal, rows=lambda *_: rows, folder=folder)
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
