"""What `status` tells of a training on pairs: how probable both sides were before, and are now."""

import re
from pathlib import Path

from commands import call
from told import write_run

from lpfloop.loop.lake.query.answer_logprobs import answer_logprobs
from lpfloop.policies.trainers.trainer_history import BELOW, TOKEN
from lpfloop.stores.lake import RunReader
from lpfloop.stores.records import Statistic

STEPS = 8


def trained(iteration: int, last: tuple[float, ...], below: float) -> list[Statistic]:
    """The numbers of a training whose last quarter of steps has these means."""
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


def test_the_last_quarter_of_the_steps_is_told_of_both_sides(tmp_path: Path):
    run = write(tmp_path)
    told = answer_logprobs(run, 1)
    assert told is not None
    assert (told.chosen, told.rejected, told.below) == ((-0.25, -0.15), (-0.25, -0.375), 0.25)
    assert told.warning() is None
    assert answer_logprobs(run, 3) is None
    run.close()


def test_status_warns_with_a_remedy_where_many_chosen_answers_fell(tmp_path: Path):
    write(tmp_path).close()
    code, out, _ = call(tmp_path, "status", "a")
    assert code == 0
    line = "chosen -0.250 -> -0.500, rejected -0.250 -> -2.000; 75% of chosen answers fell below"
    assert line in out
    (warning,) = re.findall(r"warning: (.*)", out)
    assert warning.startswith("DPO of iteration 2 left 75% of its chosen answers less probable")
    assert "training.dpo.sft_weight=1" in warning
