"""What a critic, a grader or a reviewer said that could not be read can be asked for again."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from crashing import KILLED, RUN, Attempt, Silent, stand_ins, whole
from reviews import BAD, GOOD, write_prompts

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.loop import run_loop
from lpfloop.loop.run.outcomes import NothingToTrainOn
from lpfloop.loop.run.stop import StopSignal
from lpfloop.loop.stages.made_of_judgements import kind_of, made_of
from lpfloop.loop.stages.retry_unscored import to_retry, unscored
from lpfloop.stores.digest import run_digest
from lpfloop.stores.journal import Done, Journal
from lpfloop.stores.journal_reader import Reader
from lpfloop.stores.lake import RunReader, run_folder

SETTINGS = (
    "policy.engine.kind=scripted",
    "policy.engine.script=crashing:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "critic.retry_temperature=0.7",
    "reward.model=none",
    "prompts.evaluated=4",
    "prompts.dev_share=0",
    "prompts.chunk=3",
    "iterations=1",
    "training.min_pairs=1000000",
    "assessment={reference: null, reward: false, kl: false, oracle: null, probes: null}",
)
STAMMERING = "critic.engine.script=scripts:stammering_critic"
GRADED = (
    "recipe.name=ultrafeedback-dpo",
    "completion.pool=policy",
    "critic.kind=verifier",
    "grading.model=tiny",
    "grading.engine.kind=scripted",
    "grading.engine.script=graders:stammering",
    "prompts.parts={sft: 0, preference: 8, unlabeled: 0}",
    "recipe.n=3",
)
REVIEWED = (
    "recipe.n=2",
    "recipe.m=0",
    "prompts.quality.judge=model",
    "prompts.quality.model=tiny",
    "prompts.quality.engine={kind: scripted, script: 'reviews:hesitant'}",
    "prompts.quality.retry_temperature=0.7",
)
CASES = {
    "critiques": ("critic.attempts", (STAMMERING, "recipe.n=2", "recipe.m=0")),
    "grades": ("grading.attempts", GRADED),
    "reviews": ("prompts.quality.attempts", REVIEWED),
}


def config(folder: Path, kind: str, attempts: int, *overrides: str) -> RunConfig:
    setting, settings = CASES[kind]
    source = f"prompts.source={write_prompts(folder, *GOOD, *BAD)}"
    chosen = (*SETTINGS, *settings, source, f"{setting}={attempts}", *overrides)
    return load_config("tiny", None, chosen, {})


def turned(lake: Path, *, wanted: RunConfig, name: str = RUN, again: bool = False) -> None:
    job = Job(config=wanted, lake=lake, name=name, retry_unscored=again)
    with suppress(NothingToTrainOn):
        run_loop(job, Silent(), StopSignal())


def left(lake: Path, name: str = RUN) -> int:
    reader = Reader(run_folder(lake, name))
    found = sum(stage.rows for stage in unscored(reader))
    reader.close()
    return found


def totals(lake: Path, name: str = RUN) -> dict[tuple[int, str], dict[str, float]]:
    reader = Reader(run_folder(lake, name))
    found = {(s.iteration, s.stage): {**s.totals, "done": s.done} for s in reader.stages()}
    reader.close()
    return found


@pytest.mark.parametrize("kind", CASES)
def test_to_ask_again_is_as_if_it_had_been_read_at_first(tmp_path, kind, asked):
    with stand_ins(tmp_path):
        turned(tmp_path, wanted=config(tmp_path, kind, 1))
        assert left(tmp_path)
        before = len(asked)
        turned(tmp_path, wanted=config(tmp_path, kind, 1), again=True)
        assert left(tmp_path) == 0
        drawn = [request for request, _ in asked[before:] if request.request_id.startswith("cand")]
        assert kind == "reviews" or not drawn, "no answer was drawn again"
        turned(tmp_path, wanted=config(tmp_path, kind, 2), name="b")
    assert run_digest(run_folder(tmp_path, RUN)) == run_digest(run_folder(tmp_path, "b"))
    assert totals(tmp_path) == totals(tmp_path, "b")


def test_refinements_follow_the_critiques_that_are_read_now(tmp_path):
    with stand_ins(tmp_path):
        turned(tmp_path, wanted=config(tmp_path, "critiques", 1, "recipe.m=1"))
        before = refined(tmp_path)
        turned(tmp_path, wanted=config(tmp_path, "critiques", 1, "recipe.m=1"), again=True)
        turned(tmp_path, wanted=config(tmp_path, "critiques", 2, "recipe.m=1"), name="b")
    assert left(tmp_path) == 0
    assert before != refined(tmp_path) == refined(tmp_path, "b")
    found = whole(tmp_path)
    assert found.repeated == found.damaged == found.temporary == []
    assert found.owed == ["1 train"]
    assert found.digest == run_digest(run_folder(tmp_path, "b"))


def refined(lake: Path, name: str = RUN) -> list[tuple[str, str]]:
    """Return which answer, and by which critique, each refinement refines."""
    reader = RunReader(run_folder(lake, name))
    rows = reader.scan("candidates").filter(pl.col("kind") == "refinement")
    found = rows.select("parent_id", "critique_id").collect().rows()
    reader.close()
    return sorted(found)


@pytest.mark.parametrize("kind", CASES)
def test_what_a_model_learned_from_is_refused_by_its_kind(tmp_path, kind):
    more = "evaluation.max_tokens=64"
    with stand_ins(tmp_path):
        turned(tmp_path, wanted=config(tmp_path, kind, 1, more, "iterations=1"))
    journal = Journal(run_folder(tmp_path, RUN))
    (unit,) = journal.keys(1, "train")
    journal.commit([Done(unit=unit, parts={}, telemetry={})])
    journal.close()
    reader = Reader(run_folder(tmp_path, RUN))
    late = [stage for stage in unscored(reader) if stage.trained is not None]
    assert {stage.kind.noun for stage in late} == {kind}
    if len(late) == len(unscored(reader)):
        said = rf"{kind} of run a could not be read, but iteration 1 .* {CASES[kind][0]} makes"
        with pytest.raises(ConfigError, match=said):
            to_retry(reader)
    reader.close()


@pytest.mark.crash
@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("point", ["before#1", "after#1", "after#2"])
def test_killed_while_it_asks_again_it_ends_as_if_it_had_been_read_at_first(tmp_path, kind, point):
    wanted = config(tmp_path, kind, 1)
    Attempt(lake=tmp_path, work=partial(turned, wanted=wanted)).finish()
    again = partial(turned, wanted=wanted, again=True)
    points = {f"journal.amend.{point}": "kill"}
    assert Attempt(lake=tmp_path, work=again, points=points).start() == KILLED
    Attempt(lake=tmp_path, work=again).finish()
    straight = partial(turned, wanted=config(tmp_path, kind, 2), name="b")
    Attempt(lake=tmp_path, work=straight).finish()
    assert left(tmp_path) == 0
    assert run_digest(run_folder(tmp_path, RUN)) == run_digest(run_folder(tmp_path, "b"))


# which stages are asked again, and what was made of them

JUDGED = [
    ("critique:sample", "critiques"),
    ("critique:evaluate:held-out", "critiques"),
    ("critique:import", "critiques"),
    ("grade:complete:overall", "grades"),
    ("annotate:sample:one", "comparisons"),
    ("compare:evaluate:held-out:one", "comparisons"),
    ("prompts:review", "reviews"),
    ("critique:evaluate:mine-1234", None),
    ("compare:evaluate:mine-1234:one", None),
    ("annotate:0123456789ab", None),
    ("prompts:quality", None),
    ("train", None),
]


@pytest.mark.parametrize(("label", "noun"), JUDGED)
def test_a_stage_is_known_by_its_label(label, noun):
    kind = kind_of(label)
    assert (None if kind is None else kind.noun) == noun


REFLECTED = [
    "sample",
    "critique:sample",
    "reward:sample",
    "refine",
    "critique:refine",
    "reward:refine",
    "annotate:0123456789ab",
    "pair",
    "balance:pair",
    "train",
    "evaluate:held-out",
    "critique:evaluate:held-out",
    "measure:held-out",
    "measure:mine-1234",
    "assess:held-out",
]


@pytest.mark.parametrize(
    ("label", "made"),
    [
        ("critique:sample", ["refine", "critique:refine", "reward:refine", "pair", "balance:pair"]),
        ("critique:refine", ["pair", "balance:pair"]),
        ("critique:evaluate:held-out", ["measure:held-out"]),
    ],
)
def test_only_what_was_made_of_a_stage_is_forgotten(label, made):
    stages = [(1, name) for name in REFLECTED]
    stages = stages if "evaluate" in label else stages[: REFLECTED.index("train")]
    assert made_of((1, label), stages, prompts_change=False) == [(1, name) for name in made]


@pytest.mark.parametrize(
    ("label", "made"),
    [
        ("critique:best", ["measure:best-of-4"]),
        ("compare:best:one", ["assess:best-of-4", "assess:best-of-2"]),
        ("compare:best:fewer:one", ["assess:best-of-2"]),
    ],
)
def test_the_numbers_about_the_best_of_several_are_made_again(label, made):
    names = ["best", "critique:best", "measure:best-of-4", "compare:best:one", "assess:best-of-4"]
    names += ["best:fewer", "compare:best:fewer:one", "assess:best-of-2"]
    stages = [(1, name) for name in names]
    assert made_of((1, label), stages, prompts_change=False) == [(1, name) for name in made]


def test_reviews_that_let_in_the_same_prompts_leave_the_iterations_alone():
    stages = [(0, "prompts:review"), (0, "prompts:quality"), (1, "sample"), (1, "critique:sample")]
    made = partial(made_of, stages[0], stages)
    assert made(prompts_change=False) == stages[1:2]
    assert made(prompts_change=True) == stages[1:]
