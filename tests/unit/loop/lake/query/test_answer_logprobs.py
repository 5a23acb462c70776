"""`status` of a training on pairs: log-probabilities of both sides, before and after."""

from pathlib import Path

from lakes import write_run

from lpfloop.loop.lake.query.answer_logprobs import answer_logprobs, sinking_warning
from lpfloop.policies.trainers.work_folder import BELOW, TOKEN
from lpfloop.stores.lake import RunReader
from lpfloop.stores.records import Statistic

STEPS = 8


def trained(iteration: int, last: tuple[float, ...], below: float) -> list[Statistic]:
    """The numbers of a training with these means in its last quarter of steps."""
    early = dict.fromkeys((*TOKEN, BELOW), 0.75)
    late = dict(zip((*TOKEN, BELOW), (*last, below), strict=True))
    return [
        Statistic(iteration=iteration, method="dpo", step=step, metric=metric, value=value)
        for step in range(1, STEPS + 1)
        for metric, value in (late if step > STEPS - 2 else early).items()
    ]


def write(lake: Path) -> RunReader:
    sound = trained(1, (-0.15, -0.25, -0.375, -0.25), 0.25)
    sinking = trained(2, (-0.5, -0.25, -2.0, -0.25), 0.75)
    folder = write_run(
        lake, "a", {0: {}, 1: {Statistic: sound}, 2: {Statistic: sinking}, 3: {Statistic: []}}
    )
    return RunReader(folder)


def test_last_quarter_of_the_steps(tmp_path: Path):
    run = write(tmp_path)
    told = answer_logprobs(run, 1)
    assert told is not None
    sides = [(told[side]["reference"], told[side]["trained"]) for side in ("chosen", "rejected")]
    assert sides == [(-0.25, -0.15), (-0.25, -0.375)]
    assert told["chosen_below_reference"] == 0.25
    assert sinking_warning(1, told) is None
    assert answer_logprobs(run, 3) is None
    assert "training.dpo.sft_weight=1" in sinking_warning(2, answer_logprobs(run, 2))
    run.close()
