"""UltraFeedback's methods in the tiny world: graded, binarised, mixed, and trained for real."""

import json
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.data.files import InputError
from lpfloop.loop.lake.derive.derivation_request import DerivationRequest
from lpfloop.loop.lake.derive.rederive import rederive
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.reporter import Advance
from lpfloop.loop.run.stop import StopSignal
from lpfloop.stores.derived import scan_derived
from lpfloop.stores.lake import RunReader

pytestmark = pytest.mark.model

SMALL = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:conditioned_policy",
    "critic.kind=verifier",
    "iterations=1",
    "prompts.per_iteration=40",
    "prompts.evaluated=6",
    "prompts.deciding=6",
    "prompts.chunk=10",
    "prompts.parts={sft: 0, preference: 24, unlabeled: 16}",
    "assessment.kl=false",
    "assessment.reference=null",
    "training.min_pairs=4",
    "training.reward={learning_rate: 1.0e-4, epochs: 1, batch_size: 8, micro_batch_size: 8}",
    "training.reward.held_out=2",
    "training.dpo={learning_rate: 5.0e-5, epochs: 1, batch_size: 8, micro_batch_size: 8}",
)
MIXED = 9


class Listener:
    """A reporter that keeps which stages had something to do, and what was noted."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.notes: list[str] = []

    def begin(self, iteration: int, stage: str, *, planned: int, done: int) -> None:
        if done < planned:
            self.begun.append(stage)

    def advance(self, iteration: int, stage: str, advance: Advance) -> None:
        pass

    def end(self, iteration: int, stage: str) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


def turn(lake: Path, variant: str, *overrides: str, fork: str | None = None) -> Listener:
    """Run a variant under its own name."""
    config = load_config("tiny", variant, (*SMALL, *overrides), {})
    listener = Listener()
    run_loop(Job(config=config, lake=lake, name=variant, fork=fork), listener, StopSignal())
    return listener


@pytest.fixture(scope="module")
def mix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Preferences of other people."""
    path = tmp_path_factory.mktemp("mix") / "mix.jsonl"
    rows = [
        {"prompt": f"Count to {n}.", "chosen": f"1 to {n}.", "rejected": "No."}
        for n in range(MIXED)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, mix: Path) -> Path:
    """A lake with a run of `ultrafeedback-dpo` that mixes in a file."""
    folder = tmp_path_factory.mktemp("ultrafeedback") / "lake"
    told = turn(folder, "ultrafeedback-dpo", f"recipe.mix=[{mix}]")
    assert any(note.startswith("trained by dpo") for note in told.notes)
    return folder


def opened(lake: Path) -> RunReader:
    return open_run(lake, "ultrafeedback-dpo")


def test_pairs_of_grades_and_of_the_mix_are_trained_on(lake: Path):
    run = opened(lake)
    pairs = run.scan("pairs", iteration=1).collect()
    receipts = run.scan("receipts", iteration=1).collect()
    candidates = run.scan("candidates", iteration=1).collect()
    run.close()
    rules = dict(pairs.group_by("rule").len().iter_rows())
    assert set(rules) == {"mean-vs-random", "imported"}
    assert rules["imported"] == MIXED
    graded = pairs.filter(pl.col("rule") == "mean-vs-random")
    assert (graded["chosen_reward"] > graded["rejected_reward"]).all()
    binarised = receipts.filter(pl.col("filter") == "binarise:mean-vs-random")
    assert binarised["count"].sum() == 24
    kept = binarised.filter(pl.col("outcome") == "kept")["count"].sum()
    assert kept == graded.height
    mixed = receipts.filter((pl.col("filter") == "mix") & (pl.col("outcome") == "kept"))
    assert mixed["count"].sum() == MIXED
    sides = {*pairs["chosen_id"], *pairs["rejected_id"]}
    assert sides <= set(candidates["candidate_id"])


def test_the_same_rule_derives_the_same_pairs_of_what_is_stored(lake: Path):
    run = opened(lake)
    own = run.scan("pairs", iteration=1).filter(pl.col("rule") == "mean-vs-random").collect()
    told = rederive(run, DerivationRequest(rule="mean-vs-random")).derived
    again = scan_derived(run.folder, told.name, "pairs").collect()
    run.close()
    assert again.sort("pair_id").equals(own.sort("pair_id"))
    assert told.lineage["top_k"] is None


def test_as_many_pairs_of_a_file_are_drawn_as_the_run_has_or_so_many(lake: Path, tmp_path: Path):
    """The other units of the run are re-used, so that its own pairs are the same ones."""
    files = [tmp_path / "many.jsonl", tmp_path / "few.jsonl"]
    for path, count in zip(files, (80, 5), strict=True):
        rows = [
            {"prompt": f"Say {n} of {path.stem}.", "chosen": f"{n}.", "rejected": "No."}
            for n in range(count)
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = ("smoke.train=false", "training.min_pairs=1000")
    mix = f"recipe.mix=[{', '.join(map(str, files))}]"
    drawn: dict[str, set[str]] = {}
    for name, count in (("equal", "equal"), ("again", "equal"), ("three", "3")):
        config = load_config(
            "tiny", "ultrafeedback-dpo", (*SMALL, *ended, mix, f"recipe.mix_pairs={count}"), {}
        )
        job = Job(config=config, lake=lake, name=name, fork="ultrafeedback-dpo")
        with pytest.raises(NothingToTrainOn):
            run_loop(job, Listener(), StopSignal())
        run = open_run(lake, name)
        pairs = run.scan("pairs", iteration=1).collect()
        told = run.scan("receipts", iteration=1).filter(pl.col("filter") == "mix").collect()
        run.close()
        taken = pairs.filter(pl.col("rule") == "imported")
        own = pairs.height - taken.height
        most = own if count == "equal" else 3
        by_file = Counter(p[0]["content"].split()[-1] for p in taken["prompt"].to_list())
        assert by_file == {"many.": most, "few.": min(most, 5)}
        left = dict(told.group_by("outcome").agg(pl.col("count").sum()).iter_rows())
        assert left == {"kept": taken.height, "not_drawn": 85 - taken.height}
        drawn[name] = set(taken["pair_id"])
    assert drawn["equal"] == drawn["again"]


def test_to_draw_pairs_of_no_file_is_refused():
    with pytest.raises(ConfigError, match="mix_pairs would change nothing without files"):
        load_config("tiny", "ultrafeedback-dpo", ("recipe.mix_pairs=equal",), {})
    with pytest.raises(ConfigError, match="must be a number from 1 on, all, or equal"):
        load_config("tiny", "ultrafeedback-dpo", ("recipe.mix_pairs=half",), {})


def test_the_run_again_owes_nothing_and_a_changed_mix_is_refused(lake: Path, mix: Path):
    assert turn(lake, "ultrafeedback-dpo", f"recipe.mix=[{mix}]").begun == []
    before = mix.read_bytes()
    try:
        mix.write_bytes(before * 2)
        with pytest.raises(ConfigError, match=r"another configuration \(mix: "):
            turn(lake, "ultrafeedback-dpo", f"recipe.mix=[{mix}]")
    finally:
        mix.write_bytes(before)


def test_a_mix_that_can_not_be_read_makes_no_run(tmp_path: Path):
    (tmp_path / "mix.jsonl").write_text("{}\n")
    with pytest.raises(InputError, match="is in no known format"):
        turn(tmp_path / "lake", "ultrafeedback-dpo", f"recipe.mix=[{tmp_path / 'mix.jsonl'}]")
    assert not (tmp_path / "lake").exists()


def test_best_of_n_by_a_reward_model_of_overall_scores(lake: Path):
    # Begun from another model than M_0, here by its prompt form alone, with margins of the scores.
    start = ("training.reward.model=tiny", "training.reward.template=alpaca")
    overrides = (
        *start,
        "training.reward.margin=0.1",
        "recipe.most=4",
        "recipe.binarisation=overall",
    )
    told = turn(lake, "ultrafeedback-bon", *overrides, fork="ultrafeedback-dpo")
    assert "grade:complete:overall" in told.begun
    assert not any(stage.startswith("complete:") for stage in told.begun)
    assert any(note.startswith("trained a reward model") for note in told.notes)
    run = open_run(lake, "ultrafeedback-bon")
    pairs = run.scan("pairs", iteration=1).collect()
    metrics = run.scan("evaluations", iteration=1).collect()
    begun_as = run.scan("reward_models").collect()["parent_id"].item()
    initial = run.scan("checkpoints", iteration=0).collect()["checkpoint_id"].item()
    run.close()
    assert begun_as != initial
    assert set(pairs["rule"]) == {"overall"}
    assert set(metrics["benchmark"]) >= {"best-of-4"}


def test_a_reward_model_begins_as_no_endpoint(tmp_path: Path):
    start = "training.reward.model=http://127.0.0.1:9/v1"
    with pytest.raises(ConfigError, match="weights of an endpoint are not here"):
        turn(tmp_path / "lake", "ultrafeedback-bon", start)
