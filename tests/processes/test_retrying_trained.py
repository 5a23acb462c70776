"""Critiques of a trained run can be requested again; lpfloop repeats only the dependent stages."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from world import RUN, Silent, calls, copied, small_config, stand_ins, whole, write_prompts

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.budget import BudgetReachedError
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.unscored import unscored_stages
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import run_folder

SETTINGS = (
    "prompts.held_out_share=0.4",
    "prompts.dev_share=0.2",
    "prompts.per_iteration=8",
    "prompts.max_test=24",
    "prompts.max_dev=24",
    "verdict.on_regression=continue",
    "alarms.on_alarm=continue",
    "assessment={reference: null, reward: false, kl: false, oracle: null, probes: null}",
    "smoke.prompts=0",
    "critic.attempts=1",
    "seed=1",
)


Configure = Callable[..., RunConfig]
StageKeys = dict[tuple[int, str], list[str]]


def turned(lake: Path, wanted: RunConfig, *, again: bool = False) -> None:
    with stand_ins(lake):
        job = Job(config=wanted, lake=lake, name=RUN, retry_unscored=again)
        run_loop(job, Silent(), StopSignal())


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Configure:
    prompts = write_prompts(tmp_path_factory.mktemp("asked"), 64)
    return lambda *more: small_config(prompts, *SETTINGS, *more)


@pytest.fixture(scope="module")
def trained(config: Configure, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a run trained twice, and with unreadable replies of its critic."""
    folder = tmp_path_factory.mktemp("trained")
    turned(folder, config())
    return folder


@pytest.fixture
def lake(trained: Path, tmp_path: Path) -> Path:
    return copied(trained, tmp_path / "lake")


def left(lake: Path) -> dict[tuple[int, str], int | None]:
    with closing(Reader(run_folder(lake, RUN))) as reader:
        return {(stage.iteration, stage.stage): stage.trained for stage in unscored_stages(reader)}


def keys(lake: Path) -> StageKeys:
    with closing(Reader(run_folder(lake, RUN))) as reader:
        places = [(state.iteration, state.stage) for state in reader.stages()]
        return {place: reader.keys(*place) for place in places}


def ended(lake: Path) -> object:
    with closing(Reader(run_folder(lake, RUN))) as reader:
        return reader.events("end")[-1]


def test_only_dependents_are_made_again(lake: Path, config: Configure):
    before, unread, asked = keys(lake), left(lake), calls(lake)
    evaluated = {place for place in unread if place[1] == "critique:evaluate:held-out"}
    assert (0, "critique:evaluate:held-out") in evaluated
    assert all(unread[place] is None for place in evaluated)
    assert unread[1, "critique:sample"] == 1
    # The verdict on dev prompts chose the policy of iteration 2, which is trained.
    assert unread[1, "critique:evaluate:dev"] == 2
    assert unread[2, "critique:evaluate:dev"] is None
    turned(lake, config(), again=True)
    assert not left(lake).keys() & evaluated
    after = keys(lake)
    changed = {place for place in before if before[place] != after[place]}
    assert changed >= {(0, "measure:held-out"), (1, "verdict:held-out"), (2, "verdict:held-out")}
    for label in ("sample", "critique:sample", "pair", "train", "verdict:dev"):
        assert (1, label) not in changed
    assert not {(2, "sample"), (2, "pair"), (2, "train"), (2, "evaluate:held-out")} & changed
    assert not [name for name in calls(lake) - asked if name.startswith("cand")]
    assert ended(lake) == "done: 2 iterations"


def test_retried_run_continues(lake: Path, config: Configure):
    turned(lake, config(), again=True)
    turned(lake, config())
    turned(lake, config("iterations=3"))
    assert ended(lake) == "done: 3 iterations"
    assert whole(lake).damaged == []
    assert whole(lake).repeated == []


def test_untrained_iteration_follows_verdict(tmp_path: Path, config: Configure):
    with pytest.raises(BudgetReachedError):
        turned(tmp_path, config("seed=0", "budget.judge_calls=119"))
    before = keys(tmp_path)
    assert (2, "critique:sample") in before
    assert (2, "train") not in before
    assert left(tmp_path)[1, "critique:evaluate:dev"] is None
    turned(tmp_path, config("seed=0"), again=True)
    assert keys(tmp_path)[1, "verdict:dev"] != before[1, "verdict:dev"]
    assert ended(tmp_path) == "done: 2 iterations"
    assert whole(tmp_path).pending == []
