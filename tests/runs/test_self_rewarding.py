"""Self-rewarding: the judging policy, pairs by mean ratings, and the measuring judge."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rows import CANDIDATE, CRITIQUE
from world import RUN, SMALL, loop, quick_folder, roles_of, stand_ins, write_prompts

from lpfloop.configs.load import load_config
from lpfloop.configs.schema import RunConfig
from lpfloop.loop.data.judged_candidates import Agreement, Deciding, judge, verdicts
from lpfloop.loop.data.pairs import Pairing, pair
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.stores.frames import empty_frame, frame_rows, rows_frame
from lpfloop.stores.records import (
    AspectRating,
    Candidate,
    Checkpoint,
    Critique,
    FinishReason,
    Message,
    Pair,
    PairingOutcome,
    Prompt,
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
    """Return the judges of an iteration's candidates of one kind."""
    of = {c.candidate_id for c in stored(lake, Candidate, name, iteration) if c.kind == kind}
    said = stored(lake, Critique, name, iteration)
    return {row.critic for row in said if row.candidate_id in of}


def test_judge_follows_the_policy(lake: Path) -> None:
    for name in ("follows", "frozen"):
        loop(lake, config=config(lake, f"recipe.judge={name}"), name=name)
    for name in ("follows", "frozen"):
        initial, first = made(lake, name, 0), made(lake, name, 1)
        assert judges(lake, name, 1, kind="sample") == {initial}
        assert judges(lake, name, 2, kind="sample") == {first if name == "follows" else initial}
        for iteration in (0, 1, 2):
            assert judges(lake, name, iteration, kind="greedy") == {initial}


def test_policy_judges_without_critic(lake: Path) -> None:
    nobody = ("critic.model=none", "critic.engine.kind=auto", "critic.engine.script=null")
    wanted = config(lake, *nobody, "iterations=1")
    assert [role.name for role in roles_of(wanted)] == ["policy"]
    loop(lake, config=wanted)
    assert judges(lake, RUN, 1, kind="sample") == {made(lake, RUN, 0)}
    assert judges(lake, RUN, 1, kind="greedy") == set()
    assert stored(lake, Pair)


def rated(
    name: str, *means: tuple[int, ...] | None, finish: FinishReason = "stop"
) -> list[Candidate | Critique]:
    """Make a candidate and its critiques; None means unreadable."""
    candidate = replace(
        CANDIDATE, candidate_id=name, prompt_id="p", text=f"text {name}", finish_reason=finish
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
    judged = judge(rows_frame(Candidate, candidates), empty_frame("rewards"), said)
    how = Pairing(rule="rating_extremes", top_k=1, root_seed=0, iteration=1)
    found = pair(judged, rows_frame(Prompt, [PROMPT]), how)
    (outcome,) = frame_rows(PairingOutcome, found.outcomes)
    return [(p.chosen_id, p.rejected_id) for p in frame_rows(Pair, found.rows)], outcome.outcome


def test_highest_mean_with_lowest() -> None:
    # By the worst of each aspect b would equal c; by its last critique, it would be the best.
    of = (
        rated("a", (1, 1), (1, 0), (1, 1)),
        rated("b", (-1, 1), (-1, -1), (1, 1)),
        rated("c", (-1, -1), (0, -1), (-1, 0)),
    )
    assert paired(*of) == ([("a", "c")], "paired")
    assert paired(*of, agreement="mean") == ([("a", "c")], "paired")


def test_unread_counts_in_no_mean() -> None:
    of = (rated("a", None, (1, 1)), rated("b", (0, 0), None), rated("c", None, None))
    assert paired(*of) == ([("a", "b")], "paired")
    cut = rated("d", (-1, -1), finish="length")
    assert paired(*of, cut) == ([("a", "b")], "paired")
    assert paired(rated("a", None), rated("b", None)) == ([], "none_rated")
