"""Self-rewarding: whose weights judge, what is paired by their mean ratings, who measures it."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from crashing import RUN, SMALL, loop, quick_folder, stand_ins, write_prompts
from descent import descend
from typer.testing import CliRunner

from examples import CRITIQUE
from lpfloop.configs.critic import Agreement
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.planning import planned
from lpfloop.loop.data.judged_candidates import Deciding, judge, verdicts
from lpfloop.loop.data.pairs import Pairing, pair
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.evaluation.compare_runs import incomparable, results
from lpfloop.loop.lake.derive.derivation_request import DerivationRequest
from lpfloop.loop.lake.derive.rederive import rederive
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.recipes.roles import needed_roles, require_named
from lpfloop.loop.run.models import Models
from lpfloop.policies.engines.canary import write_canary
from lpfloop.stores.derived import scan_derived
from lpfloop.stores.frames import empty, frame_rows, rows_frame
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import (
    AspectRating,
    Candidate,
    Checkpoint,
    Critique,
    FinishReason,
    Message,
    Pair,
    Prompt,
    Yield,
)
from lpfloop.stores.schemas import TABLES, R

OTHERS = ("recipe.", "policy.engine.script=", "critic.engine.script=")
HERE = (
    *(setting for setting in SMALL if not setting.startswith(OTHERS)),
    "policy.engine.script=scripts:obliging",
    "critic.engine.script=scripts:obliging",
)
LIMITS = ("recipe.n=4", "critic.samples=3", "critic.attempts=3", "prompts.per_iteration=8")
PROMPT = Prompt(
    prompt_id="p",
    task="general",
    messages=(Message(role="user", content="Well?"),),
    reference=None,
    source="test",
    checks=(),
    split="train",
)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        write_prompts(folder, 24)
        yield folder


def config(lake: Path, *overrides: str) -> RunConfig:
    source = f"prompts.source={lake / 'prompts.jsonl'}"
    return load_config("tiny", "self-rewarding", (*HERE, *LIMITS, source, *overrides), {})


def stored(lake: Path, row_type: type[R], name: str = RUN, iteration: int = 1) -> list[R]:
    run = open_run(lake, name)
    found = frame_rows(row_type, run.scan(TABLES[row_type], iteration=iteration).collect())
    run.close()
    return found


def made(lake: Path, name: str, iteration: int) -> str:
    (row,) = stored(lake, Checkpoint, name, iteration)
    return row.checkpoint_id


def judges(lake: Path, name: str, iteration: int, *, kind: str) -> set[str]:
    """Return who judged an iteration's candidates of one kind."""
    of = {c.candidate_id for c in stored(lake, Candidate, name, iteration) if c.kind == kind}
    said = stored(lake, Critique, name, iteration)
    return {row.critic for row in said if row.candidate_id in of}


# who judges


def test_the_judge_follows_the_policy_and_who_measures_stays(lake: Path) -> None:
    for name in ("follows", "frozen"):
        loop(lake, config=config(lake, f"recipe.judge={name}"), name=name)
    for name in ("follows", "frozen"):
        initial, first = made(lake, name, 0), made(lake, name, 1)
        assert judges(lake, name, 1, kind="sample") == {initial}
        assert judges(lake, name, 2, kind="sample") == {first if name == "follows" else initial}
        for iteration in (0, 1, 2):
            assert judges(lake, name, iteration, kind="greedy") == {initial}
    found = results(lake, ["follows", "frozen"])
    assert incomparable(found, "approval") is None
    assert all("approval" in result.numbers for result in found)


def test_the_first_iteration_is_the_same_whether_the_judge_follows_or_stays(lake: Path) -> None:
    keys = list[list[str]]()
    for name in ("follows", "frozen"):
        loop(lake, config=config(lake, f"recipe.judge={name}", "iterations=1"), name=name)
        run = open_run(lake, name)
        keys.append([k for s in run.journal.stages() for k in run.journal.keys(1, s.stage)])
        run.close()
    assert keys[0] == keys[1]


def test_without_a_critic_the_policy_judges_and_nobody_rates_held_out_answers(lake: Path) -> None:
    nobody = ("critic.model=none", "critic.engine.kind=auto", "critic.engine.script=null")
    wanted = config(lake, *nobody, "iterations=1")
    roles = {role.name: role.needed_by for role in needed_roles(wanted)}
    assert set(roles) == {"policy"}
    assert "critique" in roles["policy"]
    require_named(needed_roles(wanted), "self-rewarding")
    loop(lake, config=wanted)
    assert judges(lake, RUN, 1, kind="sample") == {made(lake, RUN, 0)}
    assert judges(lake, RUN, 1, kind="greedy") == set()
    assert stored(lake, Pair)


def test_a_plan_asks_the_policy_for_its_judgements(lake: Path) -> None:
    wanted = config(lake, "iterations=1", "prompts.held_out_share=0.25")
    prompts = load_prompts(wanted.prompts, seed=wanted.seed)
    plan = planned(wanted, prompts, lake)
    asked = {role.role: role.asked_by for role in plan.roles}
    assert "critique" in asked["policy"]
    assert asked["critic"] == ("evaluate",)
    calls = {s.stage: s.calls for s in plan.stages if s.stage.startswith("critique:sample")}
    assert calls == dict.fromkeys(("critique:sample", "critique:sample#2", "critique:sample#3"), 32)


@pytest.mark.model
def test_one_engine_answers_and_judges_where_both_are_run_alike(tmp_path: Path) -> None:
    alike = ("policy.engine.kind=transformers", "critic.engine.kind=transformers")
    opened = Models.of(load_config("tiny", None, alike, {}), tmp_path / "logs", asked=("critic",))
    initial = opened.engine(opened.initial)
    assert opened.engine(opened.feedback) is initial
    rows = descend(Path(opened.initial.location), tmp_path / "m_1")
    canary = tmp_path / "canary"
    canary.mkdir()
    write_canary(canary, rows)
    first = replace(opened.initial, identity="m_1", location=str(tmp_path / "m_1"), canary=canary)
    policy = opened.engine(first)
    assert opened.engine(replace(first, engine=opened.feedback.engine)) is policy
    assert opened.engine(opened.feedback) is initial
    # Run in another way, the judge has an engine of its own, and leaves the policy's alone.
    short = opened.feedback.engine.model_copy(update={"max_model_len": 256})
    judge_ = opened.engine(replace(first, engine=short))
    assert judge_ is not policy
    assert opened.engine(first) is policy
    second = replace(first, identity="m_2")
    assert opened.engine(second) is policy
    assert opened.engine(replace(second, engine=short)) is judge_
    opened.close()


# what is paired


def rated(
    name: str, *means: tuple[int, ...] | None, finish: FinishReason = "stop"
) -> list[Candidate | Critique]:
    """Make a candidate and its critiques; None could not be read."""
    candidate = Candidate(
        candidate_id=name,
        prompt_id="p",
        iteration=1,
        kind="sample",
        parent_id=None,
        critique_id=None,
        policy="M_0",
        model="tiny",
        principle=None,
        text=f"text {name}",
        prompt_tokens=1,
        completion_tokens=1,
        finish_reason=finish,
        logprob=None,
        seed=0,
        sampling="{}",
    )
    said = [
        replace(
            CRITIQUE,
            critique_id=f"crit-{name}-{n}",
            candidate_id=name,
            aspects=tuple(
                AspectRating(name=str(a), rating=r, comment="") for a, r in enumerate(mean or ())
            ),
            status="scored" if mean else "no_dictionary",
        )
        for n, mean in enumerate(means)
    ]
    return [candidate, *said]


def paired(
    *of: list[Candidate | Critique], agreement: Agreement | None = "all"
) -> tuple[list[tuple[str, str]], str]:
    candidates = [row for one in of for row in one if isinstance(row, Candidate)]
    critiques = [row for one in of for row in one if isinstance(row, Critique)]
    said = verdicts(rows_frame(Critique, critiques), Deciding(agreement=agreement))
    judged = judge(rows_frame(Candidate, candidates), empty("rewards"), said)
    how = Pairing(rule="rating_extremes", top_k=1, root_seed=0, iteration=1)
    found = pair(judged, rows_frame(Prompt, [PROMPT]), how)
    (outcome,) = frame_rows(Yield, found.yields)
    return [(p.chosen_id, p.rejected_id) for p in frame_rows(Pair, found.rows)], outcome.outcome


def test_the_highest_mean_is_paired_with_the_lowest() -> None:
    # By the worst of each aspect b would be as bad as c; by its last critique, the best.
    of = (
        rated("a", (1, 1), (1, 0), (1, 1)),
        rated("b", (-1, 1), (-1, -1), (1, 1)),
        rated("c", (-1, -1), (0, -1), (-1, 0)),
    )
    assert paired(*of) == ([("a", "c")], "paired")
    assert paired(*of, agreement="mean") == ([("a", "c")], "paired")


def test_a_single_judgement_is_its_own_mean() -> None:
    of = (rated("a", (0, 0, 1)), rated("b", (1, 1, -1)), rated("c", (0, 0, 0)))
    assert paired(*of, agreement=None)[0] in ([("a", "c")], [("b", "c")])


def test_equal_means_give_no_pair() -> None:
    of = (rated("a", (1, -1), (0, 0)), rated("b", (0, 0), (0, 0)))
    assert paired(*of) == ([], "no_negative")


def test_what_cannot_be_read_counts_in_no_mean() -> None:
    of = (rated("a", None, (1, 1)), rated("b", (0, 0), None), rated("c", None, None))
    assert paired(*of) == ([("a", "b")], "paired")
    cut = rated("d", (-1, -1), finish="length")
    assert paired(*of, cut) == ([("a", "b")], "paired")
    assert paired(rated("a", None), rated("b", None)) == ([], "none_rated")


def test_a_run_pairs_by_the_means_of_all_judgements_and_tells_why(lake: Path) -> None:
    loop(lake, config=config(lake, "iterations=1"))
    about = defaultdict[str, list[float]](list)
    samples = Counter[int | None]()
    for row in stored(lake, Critique):
        samples[row.sample] += 1
        if row.status == "scored":
            ratings = [a.rating for a in row.aspects if a.rating is not None]
            about[row.candidate_id].append(fmean(ratings))
    assert samples[2] == samples[3] > 0
    score = {candidate: fmean(means) for candidate, means in about.items()}
    of = defaultdict[str, list[float]](list)
    for row in stored(lake, Candidate):
        if row.kind == "sample" and row.candidate_id in score:
            of[row.prompt_id].append(score[row.candidate_id])
    pairs = stored(lake, Pair)
    assert pairs
    for row in pairs:
        assert score[row.chosen_id] == pytest.approx(max(of[row.prompt_id]))
        assert score[row.rejected_id] == pytest.approx(min(of[row.prompt_id]))
        assert (row.chosen_reward, row.rejected_reward) == (None, None)
    alike = {x for x, scores in of.items() if max(scores) == min(scores)}
    assert alike.isdisjoint(row.prompt_id for row in pairs)
    done = CliRunner().invoke(app, ["show", pairs[0].pair_id, "--lake", str(lake)])
    assert done.exit_code == 0, done.output
    told = " ".join(done.stdout.split())
    assert "the lowest mean ratings first" in told
    assert f"margin +{score[pairs[0].chosen_id] - score[pairs[0].rejected_id]:.3f}" in told
    run = open_run(lake, RUN)
    again = rederive(run, DerivationRequest(rule="rating_extremes", top_k=1))
    run.close()
    rows = scan_derived(run_folder(lake, RUN), again.derived.name, "pairs").collect()
    assert set(rows["pair_id"]) == {row.pair_id for row in pairs}
