"""The verbs of an iteration on scripted engines: what is planned, paid, stopped, resumed."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest
import scripts
from hypothesis import given, settings
from hypothesis import strategies as st

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.loop import Job, run_loop
from lpfloop.loop.lake.query.row_lists import RowSelection, critiques
from lpfloop.loop.lake.query.runs import open_run, status
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.reporter import Advance
from lpfloop.loop.run.stop import Stopped, StopSignal
from lpfloop.stores.lake import RunReader, run_folder

SCRIPTED = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "reward.model=none",
    "prompts.per_iteration=24",
    "prompts.evaluated=12",
    "prompts.deciding=12",
    "prompts.chunk=5",
    "recipe.n=3",
    "training.min_pairs=1000000",
)


def job(lake: Path, *overrides: str, variant: str = "rlrf", name: str = "a") -> Job:
    config = load_config("tiny", variant, (*SCRIPTED, "iterations=1", *overrides), {})
    return Job(config=config, lake=lake, name=name)


class Watcher:
    """A reporter that asks for a stop after some commits."""

    def __init__(self, stop: StopSignal | None = None, after: int = -1) -> None:
        self.commits = 0
        self.rows = Counter[str]()
        self.stage = ""
        self._stop = stop
        self._after = after

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        self.stage = stage

    def advance(self, iteration: int, stage: str, advance: Advance) -> None:
        self.commits += 1
        self.rows[self.stage] += advance.rows
        if self._stop is not None and self.commits == self._after:
            self._stop.request()

    def end(self, iteration: int, stage: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass


def finish(wanted: Job) -> Watcher:
    watcher = Watcher()
    with pytest.raises(NothingToTrainOn):
        run_loop(wanted, watcher, StopSignal())
    return watcher


def committed(lake: Path, name: str = "a") -> set[tuple[str, str, str]]:
    reader = RunReader(run_folder(lake, name))
    found = {(p.unit, p.table, p.sha256) for p in reader.journal.parts()}
    reader.close()
    return found


def test_an_iteration_samples_critiques_rewards_refines_and_pairs(tmp_path):
    finish(job(tmp_path, "recipe.m=2"))
    run = open_run(tmp_path, "a")
    candidates = run.scan("candidates", iteration=1).collect()
    assert candidates.filter(pl.col("kind") == "sample").height == 24 * 3
    refined = candidates.filter(pl.col("kind") == "refinement")
    assert 0 < refined.height <= 24 * 2
    parents = set(refined["parent_id"])
    assert parents <= set(candidates.filter(pl.col("kind") == "sample")["candidate_id"])
    critiques = run.scan("critiques", iteration=1).collect()
    assert set(refined["critique_id"]) <= set(critiques["critique_id"])
    judged = set(critiques["candidate_id"])
    assert set(candidates.filter(pl.col("kind") != "greedy")["candidate_id"]) <= judged
    assert candidates["candidate_id"].n_unique() == candidates.height
    assert candidates["seed"].n_unique() == candidates.height
    run.close()


def test_an_unread_reply_is_asked_again_and_then_stored_as_unscored_never_as_zero(tmp_path):
    finish(job(tmp_path, "critic.attempts=3"))
    run = open_run(tmp_path, "a")
    critiques = run.scan("critiques").collect()
    unscored = critiques.filter(pl.col("status") != "scored")
    assert unscored.height < critiques.height / 50
    assert set(unscored["attempts"]) <= {3}
    assert set(critiques["attempts"]) >= {1, 2}
    ratings = unscored.explode("aspects").unnest("aspects")["rating"]
    assert ratings.null_count() == len(ratings)
    run.close()


def test_pairs_are_successes_against_failures(tmp_path):
    finish(job(tmp_path))
    run = open_run(tmp_path, "a")
    pairs = run.scan("pairs").collect().to_dicts()
    assert pairs
    for pair in pairs:
        assert all(rating == 1 for rating in pair["chosen_ratings"])
        assert any(rating < 1 for rating in pair["rejected_ratings"])
        assert pair["chosen"] != pair["rejected"]
    outcomes = run.scan("yields").collect()
    assert outcomes.height == 24
    assert outcomes["made"].sum() == len(pairs)
    run.close()


def test_reward_only_makes_no_critique_in_the_loop(tmp_path):
    watcher = finish(job(tmp_path, f"reward.model={scripts.__file__}:score", variant="reward-only"))
    assert not any(stage.startswith("critique:sample") for stage in watcher.rows)


def test_rejection_sampling_makes_demonstrations(tmp_path):
    finish(job(tmp_path, "recipe.train=rs"))
    run = open_run(tmp_path, "a")
    demonstrations = run.scan("demonstrations").collect().to_dicts()
    assert demonstrations
    assert all(row["completion"][0]["role"] == "assistant" for row in demonstrations)
    assert all(rating == 1 for row in demonstrations for rating in row["ratings"])
    run.close()


def test_the_verifier_can_judge_in_the_loop(tmp_path):
    finish(job(tmp_path, "critic.kind=verifier"))
    run = open_run(tmp_path, "a")
    critics = run.scan("critiques").collect()["critic"].unique().to_list()
    assert critics == ["verifier"]
    run.close()


def test_both_judges_together_add_the_verifiers_rating(tmp_path):
    finish(job(tmp_path, "critic.kind=both"))
    run = open_run(tmp_path, "a")
    verified = critiques(run, RowSelection(aspect="Verified")).collect().to_dicts()
    scored = [row for row in verified if row["status"] == "scored"]
    assert scored
    assert all(len(row["aspects"]) >= 2 for row in scored)
    run.close()


def test_running_again_repeats_nothing(tmp_path):
    finish(job(tmp_path))
    before = committed(tmp_path)
    again = finish(job(tmp_path))
    assert again.commits == 0
    assert committed(tmp_path) == before


@settings(max_examples=8)
@given(stops=st.lists(st.integers(1, 12), max_size=5))
def test_a_run_stopped_anywhere_and_resumed_has_the_same_lake(tmp_path_factory, stops):
    straight = tmp_path_factory.mktemp("straight")
    finish(job(straight))
    stopped = tmp_path_factory.mktemp("stopped")
    commits = 0
    for after in stops:
        stop = StopSignal()
        watcher = Watcher(stop, after)
        with pytest.raises((Stopped, NothingToTrainOn)):
            run_loop(job(stopped), watcher, stop)
        commits += watcher.commits
    commits += finish(job(stopped)).commits
    assert committed(stopped) == committed(straight)
    reader = RunReader(run_folder(stopped, "a"))
    assert commits == sum(s.done for s in reader.journal.stages())
    reader.close()


def test_other_seeds_give_other_candidates(tmp_path):
    finish(job(tmp_path, "seed=1", name="one"))
    finish(job(tmp_path, "seed=2", name="two"))
    assert not committed(tmp_path, "one") & committed(tmp_path, "two")


def test_a_run_is_not_continued_with_another_configuration(tmp_path):
    finish(job(tmp_path))
    before = committed(tmp_path)
    with pytest.raises(ConfigError, match=r"config\.recipe\.top_k: 2 -> 1"):
        finish(job(tmp_path, "recipe.top_k=1"))
    assert committed(tmp_path) == before


def test_a_cosmetic_change_continues(tmp_path):
    finish(job(tmp_path))
    assert finish(job(tmp_path, "critic.engine.concurrency=3")).commits == 0


def test_the_loop_stops_before_training_and_says_why(tmp_path):
    with pytest.raises(NothingToTrainOn, match=r"fewer than training\.min_pairs=1000000") as told:
        run_loop(job(tmp_path), Watcher(), StopSignal())
    assert "paired" in str(told.value)
    run = open_run(tmp_path, "a")
    assert "NothingToTrainOn" in str(status(run)["ended"])
    run.close()


def test_prompts_of_an_iteration_are_train_prompts_and_change_between_iterations(tmp_path):
    finish(job(tmp_path))
    run = open_run(tmp_path, "a")
    prompts = run.scan("prompts").collect()
    train = set(prompts.filter(pl.col("split") == "train")["prompt_id"])
    asked = set(prompts.filter(pl.col("split") != "train")["prompt_id"])
    candidates = run.scan("candidates").collect()
    sampled = candidates.filter(pl.col("kind") == "sample")
    greedy = candidates.filter(pl.col("kind") == "greedy")
    assert set(sampled["prompt_id"]) <= train
    assert set(greedy["prompt_id"]) <= asked
    run.close()


def test_what_no_model_should_say_is_kept_and_never_a_positive(tmp_path):
    finish(
        job(
            tmp_path,
            "policy.engine.script=scripts:odd_policy",
            "critic.engine.script=scripts:odd_critic",
            "recipe.n=6",
        )
    )
    run = open_run(tmp_path, "a")
    candidates = run.scan("candidates", iteration=1).collect()
    texts = set(candidates["text"])
    assert {"", "same", "a\ufffdb", "\ufffd half a pair"} <= texts
    endless = candidates.filter(pl.col("text").str.starts_with("word word"))
    assert set(endless["finish_reason"]) == {"length"}
    chosen = {pair["chosen"][-1]["content"] for pair in run.scan("pairs").collect().to_dicts()}
    assert chosen
    assert all(text.strip() and not text.startswith("word word") for text in chosen)
    run.close()


def test_candidates_that_are_all_the_same_give_no_pair(tmp_path):
    finish(job(tmp_path, "policy.engine.script=scripts:parrot", "recipe.m=0"))
    run = open_run(tmp_path, "a")
    assert run.scan("pairs").collect().to_dicts() == []
    outcomes = set(run.scan("yields").collect()["outcome"])
    assert outcomes <= {"all_identical", "no_negative", "no_positive", "none_rated"}
    run.close()


def test_only_what_a_run_makes_in_its_work_folder_is_discarded(tmp_path):
    wanted = job(tmp_path, "iterations=0")
    run_loop(wanted, Watcher(), StopSignal())
    work = run_folder(tmp_path, "a") / "work"
    for name in ("0" * 64, "unpacked", "mine"):
        (work / name).mkdir()
        (work / name / "file").write_text("text")
    strays = [".DS_Store", ".nfs000000000123", "1" * 64]
    for name in strays:
        (work / name).write_text("text")
    run_loop(wanted, Watcher(), StopSignal())
    assert {path.name for path in work.iterdir()} == {*strays, "mine"}
    assert (work / "mine" / "file").exists()
