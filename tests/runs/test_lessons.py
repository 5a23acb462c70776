"""Table 1 of RLRF: the lessons of M_0 and the critic, their mix, and the training of both."""

from pathlib import Path

import polars as pl
import pytest
from world import Silent, stand_ins

from lpfloop.configs.load import Override, load_config
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.daemon.preparing import prepare, prepared_recipes
from lpfloop.loop.daemon.suite import Suite
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.stop import NothingToTrainOn, Stopped, StopSignal
from lpfloop.stores.lake import RunReader, run_folder

SCRIPTED = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:able_policy",
    "critic.engine.script=scripts:spoiling_teacher",
    "prompts.per_iteration=24",
    "prompts.max_test=6",
    "prompts.max_dev=6",
    "prompts.chunk=10",
    "training.min_pairs=1000000",
)


class Stopping(Silent):
    """A reporter that requests a stop after some commits."""

    def __init__(self, stop: StopSignal, after: int) -> None:
        self._stop, self._left = stop, after

    def advance(self, iteration, stage, advance):
        self._left -= 1
        if self._left == 0:
            self._stop.request()


def made(lake: Path, recipe: str, *overrides: str) -> RunReader:
    """Run a recipe up to its training."""
    config = load_config("tiny", recipe, (*SCRIPTED, *overrides), {})
    lake.mkdir(exist_ok=True)
    with stand_ins(lake), pytest.raises(NothingToTrainOn):
        run_loop(Job(config=config, lake=lake, name="a"), Silent(), StopSignal())
    return open_run(lake, "a")


def rows(run: RunReader, table: str) -> pl.DataFrame:
    return run.scan(table).collect()


@pytest.fixture(scope="module")
def lessons(tmp_path_factory):
    run = made(
        tmp_path_factory.mktemp("lessons"),
        "reflective-sft",
        "recipe.drafted=0.75",
        "recipe.revised=0.6",
        "recipe.weights={answer: 0.5, critique_with_reference: 2}",
    )
    yield run
    run.close()


def test_four_kinds_by_their_weights(lessons):
    counts = dict(rows(lessons, "demonstrations")["rule"].value_counts().iter_rows())
    assert counts["people"] == 24
    assert counts["critique"] + counts["critique_with_reference"] == 18
    assert counts["critique_with_reference/weighed"] == 2 * counts["critique_with_reference"]
    assert counts["critique/weighed"] == counts["critique"]
    # Half of each of the three chunks of 10, 10 and 4.
    assert counts["people/weighed"] == 12
    assert 0 < counts["reflection"] == counts["reflection/weighed"] < 11
    ids = rows(lessons, "demonstrations")["demonstration_id"]
    assert ids.n_unique() == ids.len()


def test_reflection_needs_a_passing_answer(lessons):
    """If the verifier can decide, lpfloop does not ask the critic."""
    verdicts = {c["candidate_id"]: c for c in rows(lessons, "critiques").to_dicts()}
    candidates = {c["candidate_id"]: c for c in rows(lessons, "candidates").to_dicts()}
    kept = rows(lessons, "demonstrations").filter(rule="reflection").to_dicts()
    assert kept
    for row in kept:
        better = candidates[row["candidate_id"]]
        verdict = verdicts[row["candidate_id"]]
        assert verdict["critic"] == "verifier"
        assert {aspect["rating"] for aspect in verdict["aspects"]} == {1}
        question = row["prompt"][0]["content"]
        assert candidates[better["parent_id"]]["text"] in question
        assert question.endswith("Revise the answer.")
        feedback = verdicts[better["parent_id"]]
        assert feedback["critique_id"] == better["critique_id"]
        assert feedback["text"] in question
        assert row["completion"][0]["content"] == better["text"]
    asked = [c for c in verdicts.values() if c["critic"] != "verifier"]
    assert not any(candidates[c["candidate_id"]]["kind"] == "refinement" for c in asked)


LEARNING = "{learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}"
TRAINED = (
    *SCRIPTED[:-1],
    "training.min_pairs=4",
    f"training.sft={LEARNING}",
    f"training.reward={LEARNING}",
    "training.reward.held_out=2",
    "assessment.kl=false",
    "verdict.on_regression=continue",
    "recipe.best_of=3",
)


def wanted(lake: Path, *overrides: str | Override) -> Suite:
    return Suite(
        config="tiny",
        recipes=prepared_recipes("rlrf"),
        seeds=(),
        lake=lake,
        prefix="p",
        overrides=(*TRAINED, *overrides),
        env={},
    )


def units(lake: Path, name: str) -> set[tuple[str, str, str]]:
    """Return the units of a run and the hashes of their rows."""
    reader = RunReader(run_folder(lake, name))
    found = {(part.unit, part.table, part.sha256) for part in reader.journal.parts()}
    reader.close()
    return found


def stopped(job: Job) -> None:
    stop = StopSignal()
    run_loop(job, Stopping(stop, after=12), stop)


def test_resume_stopped_preparation(tmp_path):
    turned = list[str]()

    def turn(job: Job) -> None:
        turned.append(job.name)
        run_loop(job, Silent(), StopSignal())

    with stand_ins(tmp_path):
        with pytest.raises(Stopped):
            prepare(wanted(tmp_path), stopped, lambda _: None)
        before = units(tmp_path, "p-reflective-sft")
        done = prepare(wanted(tmp_path), turn, lambda _: None)
    assert turned == ["p-reflective-sft", "p-task-reward"]
    assert before < units(tmp_path, "p-reflective-sft")
    assert done.policy == "p-reflective-sft:M_1"
    assert (Path(done.reward) / "config.json").is_file()

    run, other = (open_run(tmp_path, f"p-{name}") for name in ("reflective-sft", "task-reward"))
    m_1 = rows(run, "checkpoints").filter(iteration=1)["checkpoint_id"].item()
    assert m_1 in rows(other, "checkpoints").filter(iteration=0)["path"].item()
    run.close()
    other.close()
