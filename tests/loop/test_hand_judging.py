"""Judging by hand: what people are given, what is kept of it, and who uses it."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest
from crashing import RUN as LOOPED
from crashing import loop, quick_folder, small_config, stand_ins, write_prompts
from hand_judging import (
    EVERYTHING_TWICE,
    RUN,
    answer,
    candidate_id,
    lines,
    plain_run,
    prompt,
    queue,
    rate_all,
    rated,
    rewarded,
    sitting,
    write_run,
)
from turns import rows, turn
from typer.testing import CliRunner

from lpfloop.configs.schema import RunConfig
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.data.assignments import Overlap
from lpfloop.loop.data.files import InputError
from lpfloop.loop.evaluation.annotation_session import AnnotationSession, Opinion
from lpfloop.loop.lake.annotations.bring_in import bring_in_alone, waiting
from lpfloop.loop.lake.annotations.judging_queue import JudgedItem, QueueRequest, queued
from lpfloop.loop.lake.query.runs import open_run
from lpfloop.loop.run.handles import JudgedRows
from lpfloop.loop.stages.critique import critique
from lpfloop.loop.stages.keep_prompts import keep_prompts
from lpfloop.loop.stages.pair import pair
from lpfloop.loop.stages.reward import reward
from lpfloop.loop.stages.sample import sample
from lpfloop.stores.annotation_ledger import LEDGER, AnnotationLedger, LedgerError
from lpfloop.stores.digest import canonical_rows
from lpfloop.stores.frames import as_arrow
from lpfloop.stores.journal import Journal
from lpfloop.stores.lake import run_folder
from lpfloop.stores.lock import LockedError


def told(*words: object) -> str:
    """Call a command; return its stdout."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*words: object) -> str:
    """Call a command that cannot work; return its sentence."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 2, done.output
    return done.stderr


def order(lake: Path, **wanted: object) -> list[tuple[str, ...]]:
    """Return the candidates of a queue, in order."""
    with closing(open_run(lake, RUN)) as run:
        return [JudgedItem.named(name).ids for name in queued(run, queue(**wanted))]


def machine_rows(lake: Path, name: str = RUN) -> list[str]:
    """Return all that models said, as texts whose order does not matter."""
    with closing(open_run(lake, name)) as run:
        critiques = run.scan("critiques").filter(~pl.col("critic").str.starts_with("human:"))
        tables = (critiques, run.scan("rewards"), run.scan("candidates"))
        return sorted(text for t in tables for text in canonical_rows(as_arrow(t.collect())))


# What comes first.


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """Four prompts: judges agree on the first, and differ more and more on the others."""
    answers = [answer(n, which) for n in range(4) for which in (0, 1)]
    ratings = {
        candidate_id(0, 0): (1, 1),
        candidate_id(0, 1): (-1, -1),
        candidate_id(1, 0): (1, 1),
        candidate_id(1, 1): (0, 0),
        candidate_id(2, 0): (1, 1),
        candidate_id(2, 1): (-1, 1),
        candidate_id(3, 0): (1, 1),
        candidate_id(3, 1): (-1, -1),
    }
    # Of prompts 2 and 3 the reward prefers the answer that the critic fails.
    scores = [2.0, 1.0, 2.0, 1.0, 1.0, 2.0, 1.0, 2.0]
    critiques = [rated(one, *ratings[one.candidate_id]) for one in answers]
    critiques.append(rated(answers[7], 1, 1, critic="m9"))
    rewards = [rewarded(one, score) for one, score in zip(answers, scores, strict=True)]
    write_run(tmp_path, [prompt(n) for n in range(4)], answers, critiques, rewards)
    return tmp_path


def test_what_judges_disagree_on_comes_first(judged):
    found = order(judged)
    # Two critics contradict each other on one answer of prompt 3, and the reward the critic.
    assert found[0] == (candidate_id(3, 1),)
    assert {ids[0][:-1] for ids in found[:2]} == {candidate_id(n, 0)[:-1] for n in (3, 2)}
    assert len(found) == 4, "one answer of each prompt"


def test_what_the_critic_is_unsure_of_comes_first(judged):
    # Moderate in everything, or passed by one critic and failed by another.
    unsure = {(candidate_id(1, 1),), (candidate_id(3, 1),)}
    assert {*order(judged, rule="uncertain")[:2]} == unsure


def test_what_fails_comes_first(judged):
    assert order(judged, rule="failures")[0] == (candidate_id(0, 1),)


def test_of_pairs_those_come_first_in_which_critic_and_reward_differ(judged):
    found = order(judged, judged="pairs")
    assert found[0] == (candidate_id(3, 0), candidate_id(3, 1))
    clear = order(judged, judged="pairs", rule="uncertain")
    assert clear[-1] == (candidate_id(0, 0), candidate_id(0, 1))


def test_an_order_depends_on_the_seed_alone(tmp_path):
    plain_run(tmp_path, 30)
    drawn = [order(tmp_path, rule="random", seed=seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert {ids[0][:-1] for ids in drawn[0]} == {ids[0][:-1] for ids in drawn[2]}


def test_where_nothing_was_rated_only_chance_decides(tmp_path):
    answers = [answer(n, which) for n in range(2) for which in (0, 1)]
    write_run(tmp_path, [prompt(0), prompt(1)], answers, [], [])
    with pytest.raises(InputError, match="take --order random"):
        order(tmp_path)
    assert len(order(tmp_path, rule="random")) == 2


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--task", "poems"), "--task poems: the run's tasks are math"),
        (("--iteration", "7"), "--iteration 7: run judged has no whole answers there to judge"),
        (("--order", "best"), "--order best: there is no such order; the orders are disagreement"),
        (("--annotator", " "), "' ' is no name to judge under"),
        (("--pairs", "--aspect", "Readability"), "which is better as a whole"),
        ((), "annotate needs a terminal"),
    ],
)
def test_what_cannot_be_judged_is_said_in_a_sentence(tmp_path, monkeypatch, words, sentence):
    folder = plain_run(tmp_path)
    if words:
        # As in a terminal: without one nothing else is looked at.
        monkeypatch.setattr("lpfloop.loop.cli.annotate_commands._require_terminal", lambda: None)
    assert sentence in refused("annotate", RUN, *words, "--lake", tmp_path)
    if not words:
        assert not (folder / LEDGER).exists()


# What a person sees.


def test_people_judge_blind(tmp_path):
    plain_run(tmp_path)
    rate_all(tmp_path, "ada", -1)
    with sitting(tmp_path, "bo") as session:
        card = session.next_card()
        assert card is not None
        assert "SECRET" not in json.dumps(asdict(card))
        assert set(asdict(card)) == {
            "item",
            "task",
            "prompt",
            "reference",
            "answers",
            "aspects",
            "order",
        }
        assert card.aspects == ("Correctness", "Readability"), "those that the critic rated"


def test_a_vote_is_about_the_answers_and_not_about_where_they_are_shown(tmp_path):
    plain_run(tmp_path, 20)
    orders = set[str]()
    with sitting(tmp_path, "ada", queue(judged="pairs")) as session:
        while (card := session.next_card()) is not None:
            orders.add(card.order)
            better = next(n for n, text in enumerate(card.answers) if text.startswith("Answer 1"))
            session.judge(card, Opinion(ratings={}, better=better), 1.0)
    assert orders == {"as_given", "swapped"}
    bring_in_alone(run_folder(tmp_path, RUN))
    with closing(open_run(tmp_path, RUN)) as run:
        votes = run.scan("preferences").collect()
    assert votes["preferred"].to_list() == ["second"] * 20
    assert set(votes["order"]) == orders
    assert set(votes["annotator"]) == {"human:ada"}


def test_an_opinion_must_be_on_what_was_asked(tmp_path):
    plain_run(tmp_path)
    with sitting(tmp_path, "ada") as session:
        card = session.next_card()
        assert card is not None
        for ratings in ({}, {"Grace": 1}, {"Correctness": 2}):
            with pytest.raises(InputError, match="rate Correctness, Readability with -1, 0 or 1"):
                session.judge(card, Opinion(ratings=ratings), 1.0)


def test_a_queue_for_one_aspect_asks_for_that_alone(tmp_path):
    plain_run(tmp_path)
    cards = rate_all(tmp_path, "ada", 1, queue(aspect="Readability"), at_most=2)
    assert {card.aspects for card in cards} == {("Readability",)}


# What is kept of it.


def test_it_is_kept_while_another_process_holds_the_run_and_comes_in_later(tmp_path):
    folder = plain_run(tmp_path)
    before = machine_rows(tmp_path)
    with closing(Journal(folder)):
        rate_all(tmp_path, "ada", -1, at_most=3)
        with pytest.raises(LockedError):
            bring_in_alone(folder)
        assert "3 judgements wait" in told("annotate", RUN, "--commit", "--lake", tmp_path)
    assert "3 judgements came into" in told("annotate", RUN, "--commit", "--lake", tmp_path)
    assert waiting(folder) == []
    with closing(open_run(tmp_path, RUN)) as run:
        said = run.scan("critiques").filter(pl.col("critic") == "human:ada").collect()
    assert said.height == 3
    assert said["judged_at"].str.contains(r"^20\d\d-\d\d-\d\dT.*\+00:00$").all()
    assert set(said["judged_seconds"]) == {2.0}
    assert machine_rows(tmp_path) == before


def test_a_kill_between_run_and_ledger_brings_nothing_in_twice(tmp_path):
    folder = plain_run(tmp_path)
    rate_all(tmp_path, "ada", 1, at_most=2)
    bring_in_alone(folder)
    with closing(AnnotationLedger(folder)) as ledger:
        # As if the process had died before it noted what it had committed.
        ledger.came_in([1, 2], None)  # pyright: ignore[reportArgumentType]
    rate_all(tmp_path, "ada", 1, at_most=1)
    assert bring_in_alone(folder) == 3
    with closing(open_run(tmp_path, RUN)) as run:
        said = run.scan("critiques").filter(pl.col("critic") == "human:ada").collect()
    assert said.height == said["critique_id"].n_unique() == 3


def test_what_is_said_by_hand_equals_what_is_imported(tmp_path):
    """One way from a judgement to a row: a file of the same lines adds nothing."""
    folder = plain_run(tmp_path)
    rate_all(tmp_path, "ada", 0, at_most=2)
    with closing(AnnotationLedger(folder)) as ledger:
        rows = [entry.row for entry in ledger.given()]
    bring_in_alone(folder)
    path = tmp_path / "same.jsonl"
    path.write_text("".join(f"{row}\n" for row in rows))
    told("import", path, "--run", RUN, "--as", "annotations", "--lake", tmp_path)
    with closing(open_run(tmp_path, RUN)) as run:
        assert run.scan("critiques").filter(pl.col("critic") == "human:ada").collect().height == 2


def test_times_are_imported_with_their_zone_or_not_at_all(tmp_path):
    plain_run(tmp_path)
    path = tmp_path / "said.jsonl"
    row = {"candidate_id": candidate_id(0, 0), "annotator": "cy", "ratings": {"Correctness": 1}}
    said = {**row, "judged_at": "2026-05-01T11:30:00+02:00", "judged_seconds": 7.5}
    path.write_text(json.dumps(said))
    words = ("import", path, "--run", RUN, "--as", "annotations", "--lake", tmp_path)
    told(*words)
    (found,) = lines(told("annotations", RUN, "--lake", tmp_path))
    assert (found["judged_at"], found["seconds"]) == ("2026-05-01T09:30:00.000+00:00", 7.5)
    path.write_text(json.dumps({**said, "judged_at": "2026-05-01T11:30:00"}))
    assert "'judged_at' must be a time with its zone" in refused(*words)
    path.write_text(json.dumps({**said, "judged_seconds": "long"}))
    assert "'judged_seconds' must be a number of seconds" in refused(*words)


def test_show_names_who_judged_and_when(tmp_path):
    folder = plain_run(tmp_path)
    (card,) = rate_all(tmp_path, "ada", -1, at_most=1)
    bring_in_alone(folder)
    page = told("show", card.item.ids[0], "--run", RUN, "--lake", tmp_path)
    assert "by human:ada at 20" in page


def test_the_list_says_who_when_what_and_what_was_taken_back(tmp_path):
    folder = plain_run(tmp_path)
    with sitting(tmp_path, "ada") as session:
        for rating in (1, -1, 0):
            card = session.next_card()
            assert card is not None
            said = Opinion(ratings=dict.fromkeys(card.aspects, rating), comment="why not")
            session.judge(card, said, 3.0)
        assert session.undo()
    bring_in_alone(folder)
    rate_all(tmp_path, "bo", 0, at_most=1)
    found = lines(told("annotations", RUN, "--lake", tmp_path))
    assert [(row["annotator"], row["state"]) for row in found] == [
        ("human:ada", "in the run"),
        ("human:ada", "in the run"),
        ("human:ada", "taken back"),
        ("human:bo", "waiting"),
    ]
    assert found[1]["said"] == "Correctness -1, Readability -1"
    assert found[1]["comment"] == "why not"


# How well people judge.


def test_agreement_is_told_while_people_judge(tmp_path):
    plain_run(tmp_path, 8)
    ratings = {candidate_id(n, which): 1 if n < 4 else -1 for n in range(8) for which in (0, 1)}
    rate_all(tmp_path, "ada", ratings)
    with sitting(tmp_path, "bo") as session:
        assert session.agreement().units == 0
    other = {**ratings, candidate_id(0, 0): -1, candidate_id(0, 1): -1}
    rate_all(tmp_path, "bo", other)
    with sitting(tmp_path, "bo") as session:
        found, progress = session.agreement(), session.progress()
    # 16 labels, of which 2 differ: 4 to 4 items against 3 to 5.
    assert (found.units, found.measure, found.agreement) == (16, "Cohen", 0.875)
    assert found.kappa == pytest.approx((0.875 - 0.5) / 0.5)
    assert (progress.mine, progress.given, progress.wanted) == (8, 16, 16)
    assert (progress.met, progress.shared) == (8, 8)


def test_of_three_people_the_kappa_is_fleiss(tmp_path):
    plain_run(tmp_path, 4)
    three = queue(overlap=Overlap(share=1, people=3))
    ratings = {candidate_id(n, which): 1 if n < 2 else -1 for n in range(4) for which in (0, 1)}
    for name in ("ada", "bo", "cy"):
        rate_all(tmp_path, name, ratings, three)
    with sitting(tmp_path, "ada", three) as session:
        found = session.agreement()
    assert (found.measure, found.people) == ("Fleiss", ("human:ada", "human:bo", "human:cy"))
    assert (found.agreement, found.kappa) == (1.0, 1.0)


def test_quality_is_told_by_person_and_day(tmp_path):
    plain_run(tmp_path, 4)
    ratings = {candidate_id(n, which): 1 if n < 2 else -1 for n in range(4) for which in (0, 1)}
    rate_all(tmp_path, "ada", ratings)
    rate_all(tmp_path, "bo", {**ratings, candidate_id(3, 0): 1, candidate_id(3, 1): 1})
    told("annotate", RUN, "--commit", "--lake", tmp_path)
    path = tmp_path / "earlier.jsonl"
    rows = [
        {
            "candidate_id": candidate_id(n, which),
            "annotator": "ada",
            "ratings": {"Correctness": 0},
            "judged_at": "2020-01-01T00:00:00Z",
            "judged_seconds": 60,
        }
        for n in range(2)
        for which in (0, 1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told("import", path, "--run", RUN, "--as", "annotations", "--lake", tmp_path)
    done = CliRunner().invoke(app, ["annotations", RUN, "--quality", "--lake", str(tmp_path)])
    found = {(row["annotator"], row["day"]): row for row in lines(done.stdout)}
    assert found["human:ada", "2020-01-01"]["seconds"] == 60
    everything = found["human:bo", "all"]
    assert (everything["judged"], everything["shared"]) == (4, 8)
    assert everything["seconds"] == 2.0
    assert 0 < everything["others"] < 1
    assert "Cohen's kappa" in done.stderr


# Who uses it.


def test_the_later_judgement_of_a_person_decides_and_both_stay(tmp_path):
    folder = plain_run(tmp_path)
    (card,) = rate_all(tmp_path, "ada", 1, at_most=1)
    bring_in_alone(folder)
    with sitting(tmp_path, "ada") as session:
        again = session.again(card.item.ids[0])
        session.judge(again, Opinion(ratings=dict.fromkeys(again.aspects, -1)), 1.0)
    bring_in_alone(folder)
    with closing(open_run(tmp_path, RUN)) as run:
        said = run.scan("critiques").filter(pl.col("critic") == "human:ada").collect()
    assert said.height == 2
    words = ("critic-check", RUN, "--json", "--lake", tmp_path)
    groups = json.loads(told(*words))["groups"]
    (checked,) = [g for g in groups if g["against"] == "people" and not g["names"]]
    assert (checked["n"], checked["right"]["value"]) == (1, 0.0)
    # A pair that is voted on twice counts once, by the last vote.
    votes = queue(judged="pairs")
    with sitting(tmp_path, "ada", votes) as session:
        pair_card = session.next_card()
        assert pair_card is not None
        session.judge(pair_card, Opinion(ratings={}, better=0), 1.0)
    bring_in_alone(folder)
    path = tmp_path / "vote.jsonl"
    first, second = pair_card.item.ids
    vote = {"first_id": first, "second_id": second, "annotator": "ada", "preferred": "tie"}
    path.write_text(json.dumps(vote))
    told("import", path, "--run", RUN, "--as", "annotations", "--lake", tmp_path)
    path.write_text(json.dumps({**vote, "annotator": "bo"}))
    told("import", path, "--run", RUN, "--as", "annotations", "--lake", tmp_path)
    people = json.loads(told("judge-check", RUN, "--json", "--lake", tmp_path))
    (measured,) = [one for one in people["annotators"] if one["name"] == "people"]
    assert measured["verdicts"] == 2
    assert measured["held_out"]["value"] == 1.0, "ada agrees with bo now"


def test_critic_check_measures_the_critic_by_people(tmp_path):
    folder = plain_run(tmp_path)
    rate_all(tmp_path, "ada", 1)
    bring_in_alone(folder)
    found = json.loads(told("critic-check", RUN, "--json", "--lake", tmp_path))
    assert "people" in {group["against"] for group in found["groups"]}


def test_rederive_makes_pairs_by_what_people_said(tmp_path):
    folder = plain_run(tmp_path)
    told("rederive", RUN, "--rule", "success_vs_failure", "--name", "before", "--lake", tmp_path)
    rate_all(tmp_path, "ada", -1)
    bring_in_alone(folder)
    with closing(open_run(tmp_path, RUN)) as run:
        said = run.scan("critiques").filter(pl.col("critic") == "human:ada").collect()
    wrong = set(said["candidate_id"])
    told("rederive", RUN, "--rule", "success_vs_failure", "--name", "after", "--lake", tmp_path)
    lists = ("pairs", RUN, "--format", "jsonl", "--lake", tmp_path, "--derived")
    made = {
        name: {row["chosen_id"] for row in lines(told(*lists, name))}
        for name in ("before", "after")
    }
    assert made["before"] & wrong
    assert not made["after"] & wrong


# A run that goes on.


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Path]:
    with quick_folder(tmp_path) as folder, stand_ins(folder):
        yield folder


def config(lake: Path) -> RunConfig:
    limits = ("recipe.n=8", "prompts.per_iteration=8", "prompts.chunk=2", "recipe.top_k=2")
    return small_config(write_prompts(lake, 16), *limits)


def test_a_run_takes_what_was_judged_while_it_works_before_it_makes_pairs(lake):
    by_hand = QueueRequest(rule="random", items=8, overlap=EVERYTHING_TWICE)
    with turn(Job(config=config(lake), lake=lake, name=LOOPED)) as it:
        keep_prompts(it.run, "prompts", [[*it.run.prompts.values()]])
        drafts = sample(it, it.prompts(), n=8)
        said = critique(it, drafts)
        scores = reward(it, drafts)
        rows(it, scores)
        with (
            closing(open_run(lake, LOOPED)) as run,
            closing(AnnotationSession(run, "ada", by_hand)) as session,
        ):
            session.begin()
            wrong = set[str]()
            while (card := session.next_card()) is not None:
                session.judge(card, Opinion(ratings=dict.fromkeys(card.aspects, -1)), 1.0)
                wrong |= {*card.item.ids}
        judged = JudgedRows(candidates=drafts, critiques=said, rewards=scores)
        made = rows(it, pair(it, judged, rule="success_vs_failure", top_k=8))
    assert len(wrong) == 8
    assert made
    assert not {row.chosen_id for row in made} & wrong
    assert {row.rejected_id for row in made} & wrong
    assert waiting(run_folder(lake, LOOPED)) == []


def test_a_training_learns_from_what_people_said(lake):
    wanted = config(lake)
    with turn(Job(config=wanted, lake=lake, name=LOOPED)) as it:
        keep_prompts(it.run, "prompts", [[*it.run.prompts.values()]])
        rows(it, reward(it, sample(it, it.prompts(), n=8)))
    by_hand = QueueRequest(rule="random", items=8, iteration=1, overlap=EVERYTHING_TWICE)
    with (
        closing(open_run(lake, LOOPED)) as run,
        closing(AnnotationSession(run, "ada", by_hand)) as session,
    ):
        session.begin()
        wrong = set[str]()
        while (card := session.next_card()) is not None:
            session.judge(card, Opinion(ratings=dict.fromkeys(card.aspects, -1)), 1.0)
            wrong |= {*card.item.ids}
    loop(lake, config=wanted, name=LOOPED)
    with closing(open_run(lake, LOOPED)) as run:
        trained = run.scan("pairs", iteration=1).collect()
        read = [unit for unit in run.journal.stages() if unit.stage.startswith("train")]
    assert wrong
    assert trained.height
    assert not {*trained["chosen_id"]} & wrong
    assert read, "a model was trained on these pairs"


def test_nobody_can_take_back_what_the_run_has_taken(tmp_path):
    folder = plain_run(tmp_path)
    rate_all(tmp_path, "ada", 1, at_most=1)
    bring_in_alone(folder)
    with sitting(tmp_path, "ada") as session, pytest.raises(LedgerError, match="--again"):
        session.undo()
