"""Judging by hand: items for people, their stored judgements, and the users of these."""

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest
from judges import (
    EVERYTHING_TWICE,
    JUDGED,
    candidate_id,
    judged_answer,
    judged_prompt,
    judged_run,
    queue,
    rate_all,
    sitting,
    write_judged,
)
from typer.testing import CliRunner
from world import RUN as LOOPED
from world import handle_rows, small_config, stand_ins, turn, write_prompts

from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.evaluation.annotation_session import AnnotationSession, Opinion
from lpfloop.loop.lake.annotations.bring_in import bring_in_alone, waiting
from lpfloop.loop.lake.annotations.judging_queue import JudgedItem, QueueRequest, queue_items
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.handles import JudgedRows
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.pair import pair
from lpfloop.loop.stages.reward import reward
from lpfloop.loop.stages.sample import sample
from lpfloop.loop.stages.select_prompts import keep_prompts
from lpfloop.stores.annotation_ledger import AnnotationLedger
from lpfloop.stores.digest import canonical_rows
from lpfloop.stores.frames import as_arrow
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import run_folder
from lpfloop.stores.lock import LockedError


def told(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def order(lake: Path, **wanted: object) -> list[tuple[str, ...]]:
    with closing(open_run(lake, JUDGED)) as run:
        return [JudgedItem.from_name(name).ids for name in queue_items(run, queue(**wanted))]


def machine_rows(lake: Path) -> list[str]:
    """Return all rows of models, as texts in any order."""
    with closing(open_run(lake, JUDGED)) as run:
        critiques = run.scan("critiques").filter(~pl.col("critic").str.starts_with("human:"))
        tables = (critiques, run.scan("rewards"), run.scan("candidates"))
        return sorted(text for t in tables for text in canonical_rows(as_arrow(t.collect())))


def test_order_is_by_the_seed(tmp_path):
    answers = [judged_answer(n, which) for n in range(12) for which in (0, 1)]
    write_judged(tmp_path, [judged_prompt(n) for n in range(12)], answers, [], [])
    found = order(tmp_path)
    assert len(found) == 12, "one answer of each prompt"
    assert order(tmp_path) == found != order(tmp_path, seed=1)
    pairs = order(tmp_path, judged="pairs")
    assert {*pairs} == {(candidate_id(n, 0), candidate_id(n, 1)) for n in range(12)}


def test_people_judge_blind(tmp_path):
    judged_run(tmp_path)
    rate_all(tmp_path, "ada", -1)
    with sitting(tmp_path, "bo") as session:
        card = session.next_card()
        assert card is not None
        assert "SECRET" not in json.dumps(asdict(card))
        assert card.aspects == ("Correctness", "Readability"), "those that the critic rated"


def test_vote_is_about_answers_not_places(tmp_path):
    judged_run(tmp_path, 20)
    orders = set[str]()
    with sitting(tmp_path, "ada", queue(judged="pairs")) as session:
        while (card := session.next_card()) is not None:
            orders.add(card.order)
            better = next(n for n, text in enumerate(card.answers) if text.startswith("Answer 1"))
            session.judge(card, Opinion(ratings={}, better=better), 1.0)
    assert orders == {"as_given", "swapped"}
    bring_in_alone(run_folder(tmp_path, JUDGED))
    with closing(open_run(tmp_path, JUDGED)) as run:
        votes = run.scan("preferences").collect()
    assert votes["preferred"].to_list() == ["second"] * 20
    assert set(votes["order"]) == orders
    assert set(votes["annotator"]) == {"human:ada"}


def test_judgements_wait_while_run_is_held(tmp_path):
    folder = judged_run(tmp_path)
    before = machine_rows(tmp_path)
    with closing(Journal(folder)):
        rate_all(tmp_path, "ada", -1, at_most=3)
        with pytest.raises(LockedError):
            bring_in_alone(folder)
        told("annotations", JUDGED, "--commit", "--lake", tmp_path)
        assert len(waiting(folder)) == 3
    told("annotations", JUDGED, "--commit", "--lake", tmp_path)
    assert waiting(folder) == []
    with closing(open_run(tmp_path, JUDGED)) as run:
        said = run.scan("critiques").filter(pl.col("critic") == "human:ada").collect()
    assert said.height == 3
    assert said["judged_at"].str.contains(r"^20\d\d-\d\d-\d\dT.*\+00:00$").all()
    assert set(said["judged_seconds"]) == {2.0}
    assert machine_rows(tmp_path) == before


def test_kill_brings_nothing_in_twice(tmp_path):
    folder = judged_run(tmp_path)
    rate_all(tmp_path, "ada", 1, at_most=2)
    bring_in_alone(folder)
    with closing(AnnotationLedger(folder)) as ledger:
        # As if the process had died before it recorded its commit.
        ledger.came_in([1, 2], None)  # pyright: ignore[reportArgumentType]
    rate_all(tmp_path, "ada", 1, at_most=1)
    assert bring_in_alone(folder) == 3
    with closing(open_run(tmp_path, JUDGED)) as run:
        said = run.scan("critiques").filter(pl.col("critic") == "human:ada").collect()
    assert said.height == said["critique_id"].n_unique() == 3


def test_run_takes_judgements_before_pairs(tmp_path):
    by_hand = QueueRequest(items=8, overlap=EVERYTHING_TWICE)
    limits = ("recipe.n=8", "prompts.per_iteration=8", "prompts.chunk=2", "recipe.top_k=2")
    config = small_config(write_prompts(tmp_path, 16), *limits)
    with (
        stand_ins(tmp_path),
        turn(Job(config=config, lake=tmp_path, name=LOOPED)) as it,
    ):
        keep_prompts(it.run, "prompts", [[*it.run.prompts.values()]])
        drafts = sample(it, it.prompts(), n=8)
        said = critique(it, drafts)
        scores = reward(it, drafts)
        handle_rows(it, scores)
        with (
            closing(open_run(tmp_path, LOOPED)) as run,
            closing(AnnotationSession(run, "ada", by_hand)) as session,
        ):
            session.begin()
            wrong = set[str]()
            while (card := session.next_card()) is not None:
                session.judge(card, Opinion(ratings=dict.fromkeys(card.aspects, -1)), 1.0)
                wrong |= {*card.item.ids}
        judged = JudgedRows(candidates=drafts, critiques=said, rewards=scores)
        made = handle_rows(it, pair(it, judged, rule="success_vs_failure", top_k=8))
    assert len(wrong) == 8
    assert made
    assert not {row.chosen_id for row in made} & wrong
    assert {row.rejected_id for row in made} & wrong
    assert waiting(run_folder(tmp_path, LOOPED)) == []
