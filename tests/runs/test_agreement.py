"""Several critiques of a candidate: their agreement and their combined rating."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import CRITIQUE
from typer.testing import CliRunner
from world import RUN, loop, quick_folder, small_config, stand_ins, write_prompts

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.data.judged_candidates import Deciding, verdicts
from lpfloop.loop.lake.derive.rebuild_pairs import DerivationRequest, rebuild_pairs
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.stages.refine import worst
from lpfloop.stores.derived import scan_derived
from lpfloop.stores.frames import frame_rows, rows_frame
from lpfloop.stores.lake import run_folder
from lpfloop.stores.records import AspectRating, Candidate, Critique
from lpfloop.stores.schemas import TABLES, R

THREE = "critic.samples=3"
ASPECTS = ("Comprehension", "Completeness")


def said(candidate_id: str, number: int, ratings: Sequence[int] | None) -> Critique:
    """A critique of a candidate; one without ratings is unreadable."""
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
def test_critiques_agree_by_aspect(samples, agreement, shuffle):
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
                # Half-way between two levels, the lower one counts.
                levels.append(min(given_) if agreement == "all" else math.ceil(mean - 0.5))
        if not levels:
            assert candidate_id not in told
            continue
        assert sorted(told[candidate_id]["ratings"]) == sorted(levels)
        assert told[candidate_id]["success"] == all(level == 1 for level in levels)
        assert told[candidate_id]["failure"] == any(level < 1 for level in levels)


def test_worst_critique_is_reflected_on():
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


def stored(lake: Path, row_type: type[R], name: str = RUN, iteration: int = 1) -> list[R]:
    run = open_run(lake, name)
    found = frame_rows(row_type, run.scan(TABLES[row_type], iteration=iteration).collect())
    run.close()
    return found


def test_pairs_of_what_several_say(lake: Path) -> None:
    loop(lake, config=config(lake, THREE, "iterations=1"))
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
    told = rebuild_pairs(run, DerivationRequest(rule="success_vs_failure"))
    run.close()
    again = scan_derived(run_folder(lake, RUN), told.derived.name, "pairs").collect().to_dicts()
    assert sorted(again, key=str) == sorted(pairs, key=str)
    assert told.derived.lineage["agreement"] == "all"
    for pair in pairs:
        good, bad = ([c for c in about[pair[side]] if c.status == "scored"] for side in SIDES)
        assert all(c.positive for c in good)
        assert any(c.negative for c in bad)
    assert pairs
    done = CliRunner().invoke(app, ["show", pairs[0]["pair_id"], "--lake", str(lake)])
    assert "critiques)" in " ".join(done.stdout.split())


SIDES = ("chosen_id", "rejected_id")
