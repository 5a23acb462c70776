"""Several critiques of a candidate: what they say together, and that nothing else changes."""

import functools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from crashing import (
    KILLED,
    RUN,
    Attempt,
    loop,
    loop_and_look,
    quick_folder,
    seen,
    small_config,
    stand_ins,
    whole,
    write_prompts,
)
from hypothesis import given
from hypothesis import strategies as st
from turns import rows, turn
from typer.testing import CliRunner

from examples import CRITIQUE
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.daemon.planning import planned
from lpfloop.loop.data.judged_candidates import Deciding, verdicts
from lpfloop.loop.data.prompts import load_prompts
from lpfloop.loop.lake.derive.derivation_request import DerivationRequest
from lpfloop.loop.lake.derive.rederive import rederive
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.refine import worst
from lpfloop.loop.stages.sample import sample
from lpfloop.policies.engines.engine import Request, Sampling
from lpfloop.stores.derived import scan_derived
from lpfloop.stores.frames import frame_rows, rows_frame
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import AspectRating, Candidate, Critique
from lpfloop.stores.schemas import TABLES, R

THREE = "critic.samples=3"
ASPECTS = ("Comprehension", "Completeness")


def said(candidate_id: str, number: int, ratings: Sequence[int] | None) -> Critique:
    """A critique of a candidate; one without ratings could not be read."""
    pairs = [] if ratings is None else zip(ASPECTS, ratings, strict=False)
    return replace(
        CRITIQUE,
        critique_id=f"crit-{candidate_id}-{number}",
        candidate_id=candidate_id,
        aspects=tuple(AspectRating(name=name, rating=r, comment="") for name, r in pairs),
        status="no_dictionary" if ratings is None else "scored",
        sample=None if number == 1 else number,
    )


RATED = st.one_of(st.none(), st.lists(st.sampled_from([-1, 0, 1, 1]), min_size=1, max_size=2))
SAMPLES = st.dictionaries(st.sampled_from("abc"), st.lists(RATED, min_size=1, max_size=4))


@given(SAMPLES, st.sampled_from(["all", "mean"]), st.randoms(use_true_random=False))
def test_critiques_agree_aspect_by_aspect_in_whatever_order(samples, agreement, shuffle):
    critiques = [said(c, n, r) for c, rated in samples.items() for n, r in enumerate(rated, 1)]
    shuffle.shuffle(critiques)
    found = verdicts(rows_frame(Critique, critiques), Deciding(agreement=agreement))
    told = {row["candidate_id"]: row for row in found.to_dicts()}
    assert len(told) == found.height
    for candidate_id, rated in samples.items():
        levels = list[int]()
        for place in range(len(ASPECTS)):
            given_ = [r[place] for r in rated if r is not None and len(r) > place]
            if given_:
                mean = sum(given_) / len(given_)
                # Half-way between two levels is the lower one.
                levels.append(min(given_) if agreement == "all" else math.ceil(mean - 0.5))
        if not levels:
            assert candidate_id not in told
            continue
        assert sorted(told[candidate_id]["ratings"]) == sorted(levels)
        assert told[candidate_id]["success"] == all(level == 1 for level in levels)
        assert told[candidate_id]["failure"] == any(level < 1 for level in levels)


def test_the_worst_critique_that_can_be_read_is_reflected_on():
    critiques = [said("a", 1, [1]), said("a", 2, [0]), said("a", 3, [0]), said("a", 4, None)]
    critiques += [said("b", 1, None), said("b", 2, [1]), said("c", 1, None), said("c", 2, None)]
    found = {c: row.critique_id for c, row in worst(critiques).items()}
    assert found == {"a": "crit-a-2", "b": "crit-b-2", "c": "crit-c-1"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        yield folder


def config(lake: Path, *overrides: str) -> RunConfig:
    limits = ("recipe.n=6", "prompts.per_iteration=8", "recipe.top_k=2", "critic.attempts=2")
    return small_config(write_prompts(lake, 24), *limits, *overrides)


def critiqued(lake: Path, name: str, *overrides: str) -> list[Critique]:
    with turn(Job(config=config(lake, *overrides), lake=lake, name=name)) as it:
        return rows(it, critique(it, sample(it, it.prompts(), n=5)))


def stored(lake: Path, row_type: type[R], name: str = RUN, iteration: int = 1) -> list[R]:
    run = open_run(lake, name)
    found = frame_rows(row_type, run.scan(TABLES[row_type], iteration=iteration).collect())
    run.close()
    return found


def test_the_first_of_several_is_what_one_alone_would_be(
    lake: Path, asked: list[tuple[Request, Sampling]]
) -> None:
    (alone, three) = (critiqued(lake, name, *more) for name, *more in (["one"], ["two", THREE]))
    assert {row.critique_id for row in alone} == {r.critique_id for r in three if r.sample is None}
    assert [row for row in three if row.sample is None] == alone
    assert Counter(row.sample for row in three) == dict.fromkeys((None, 2, 3), len(alone))
    assert len({row.critique_id for row in three}) == len(three) == 3 * len(alone)
    again = {row.critique_id for row in three if row.sample is not None}
    drawn = [(r, s) for r, s in asked if r.request_id in again]
    assert len({request.seed for request, _ in drawn}) == len(drawn) >= len(again)
    assert {sampling.temperature for _, sampling in drawn} == {0.7}
    first = [s.temperature for r, s in asked if r.request_id in {a.critique_id for a in alone}]
    assert first.count(0.0) == 2 * len(alone)


@pytest.mark.parametrize("agreement", ["all", "mean"])
def test_pairs_are_made_of_what_several_say_together(lake: Path, agreement: str) -> None:
    loop(lake, config=config(lake, THREE, f"critic.agreement={agreement}", "iterations=1"))
    about = defaultdict[str, list[Critique]](list)
    for row in stored(lake, Critique):
        about[row.candidate_id].append(row)
    answers = {row.candidate_id: row for row in stored(lake, Candidate)}
    trained = {c for c, row in answers.items() if row.kind != "greedy"}
    assert {len(about[c]) for c in trained} == {3}
    assert {len(found) for c, found in about.items() if c not in trained} == {1}
    reflected = worst([c for found in about.values() for c in found])
    for row in answers.values():
        if row.parent_id is not None:
            assert row.critique_id == reflected[row.parent_id].critique_id
    run = open_run(lake, RUN)
    pairs = run.scan("pairs").collect().to_dicts()
    told = rederive(run, DerivationRequest(rule="success_vs_failure"))
    run.close()
    again = scan_derived(run_folder(lake, RUN), told.derived.name, "pairs").collect().to_dicts()
    assert sorted(again, key=str) == sorted(pairs, key=str)
    assert told.derived.lineage["agreement"] == agreement
    split = 0
    for pair in pairs:
        good, bad = ([c for c in about[pair[side]] if c.status == "scored"] for side in SIDES)
        split += not all(c.positive for c in good) or not all(c.negative for c in bad)
        if agreement == "all":
            assert all(c.positive for c in good)
            assert any(c.negative for c in bad)
    assert pairs
    assert split > 0


SIDES = ("chosen_id", "rejected_id")


def test_why_a_pair_was_made_tells_of_all_critiques(lake: Path) -> None:
    loop(lake, config=config(lake, THREE, "iterations=1"))
    run = open_run(lake, RUN)
    pair = run.scan("pairs").collect().to_dicts()[0]
    run.close()
    done = CliRunner().invoke(app, ["show", pair["pair_id"], "--lake", str(lake)])
    assert done.exit_code == 0, done.output
    assert "critiques)" in " ".join(done.stdout.split())


def test_a_run_that_is_killed_among_samples_is_the_same_afterwards(lake: Path) -> None:
    wanted = config(lake, THREE, "critic.agreement=mean", "prompts.chunk=4", "iterations=1")
    work = functools.partial(loop_and_look, config=wanted)
    straight, killed = lake / "straight", lake / "killed"
    straight.mkdir()
    killed.mkdir()
    Attempt(lake=straight, work=work).finish()
    for number in (5, 4):
        points = {f"lake.commit.after#{number}": "kill"}
        assert Attempt(lake=killed, work=work, points=points).start() == KILLED
    Attempt(lake=killed, work=work).finish()
    assert seen(killed) == seen(straight)
    assert {row.sample for row in stored(killed, Critique)} == {None, 2, 3}


def test_a_plan_counts_every_sample(lake: Path) -> None:
    def calls(*overrides: str) -> dict[str, int]:
        wanted = config(lake, "iterations=1", *overrides)
        prompts = load_prompts(wanted.prompts, seed=wanted.seed)
        return {s.stage: s.calls for s in planned(wanted, prompts, lake).stages}

    one, three = calls(), calls(THREE)
    for about in ("sample", "refine"):
        names = [f"critique:{about}{more}" for more in ("", "#2", "#3")]
        assert [three.pop(name) for name in names] == [one.pop(names[0])] * 3
    assert three == one


def test_the_verifier_is_asked_once() -> None:
    with pytest.raises(ConfigError, match=r"critic.*says the same each time"):
        load_config("tiny", "rlrf", (THREE, "critic.kind=verifier"), {})


def test_unread_samples_are_asked_again(lake: Path) -> None:
    def unread(name: str) -> Counter[int | None]:
        return Counter(r.sample for r in stored(lake, Critique, name) if r.status != "scored")

    run = functools.partial(critiqued, lake, RUN, THREE, "critic.attempts=1")
    run()
    before = unread(RUN)
    assert min(before[number] for number in (None, 2, 3)) > 0
    wanted = config(lake, THREE, "critic.attempts=1")
    with turn(Job(config=wanted, lake=lake, name=RUN)) as it:
        it.run.retry.update((1, f"critique:sample{more}") for more in ("", "#2", "#3"))
        rows(it, critique(it, sample(it, it.prompts(), n=5)))
    after = unread(RUN)
    assert all(after[number] < before[number] for number in (None, 2, 3))
    assert whole(lake).owed == []
