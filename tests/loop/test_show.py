"""`lpfloop show`: what is told of an id, and why a pair was made; hostile text is harmless."""

import json
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from told import (
    BAD,
    FAIR,
    GOOD,
    HOSTILE,
    LACKING,
    M0,
    M1,
    MADE_PAIR,
    PAIRED,
    candidate,
    critique,
    made,
    reward,
    told_run,
    write_run,
)
from typer.testing import CliRunner

from examples import CANDIDATE, PAIR, PREFERENCE, PROMPT, YIELD
from lpfloop.loop.cli.app import app
from lpfloop.loop.data.sanitize import HIDDEN
from lpfloop.loop.lake.trace.find_row import Found
from lpfloop.loop.lake.trace.html_page import page_html
from lpfloop.loop.lake.trace.page import story_page
from lpfloop.loop.lake.trace.story import Story
from lpfloop.loop.lake.trace.terminal_page import page_text
from lpfloop.loop.lake.trace.why import why_pair, why_yield
from lpfloop.stores.records import Pair, Prompt


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A lake with two runs of the same rows; `told` was written last."""
    folder = tmp_path_factory.mktemp("show")
    write_run(folder, "older", {0: {Prompt: [PAIRED]}})
    told_run(folder)
    return folder


@pytest.fixture
def call(lake, monkeypatch):
    def call(*arguments, width=80):
        monkeypatch.setenv("COLUMNS", str(width))
        return CliRunner().invoke(app, [*map(str, arguments), "--lake", str(lake)])

    return call


def story(*, candidates=(), critiques=(), rewards=(), grades=(), pairs=(), yields=()):
    return Story(
        run="r",
        asked=Found(kind="prompt", id=PAIRED.prompt_id, prompt_id=PAIRED.prompt_id),
        prompt=PAIRED,
        candidates=list(candidates),
        critiques=list(critiques),
        rewards=list(rewards),
        preferences=[],
        grades=list(grades),
        breakdowns=[],
        claims=[],
        pairs=list(pairs),
        demonstrations=[],
        yields=list(yields),
        scores=[],
        checkpoints=[],
        derived=[],
    )


# any id


@pytest.mark.parametrize(
    "identity",
    ["prompt-1", "cand-good", "cand-goo", "crit-better", "pref-made", "pair-made", "pair-"],
)
def test_any_id_or_its_beginning_shows_its_prompt(call, identity):
    told = call("show", identity)
    assert told.exit_code == 0, told.stderr
    assert told.stdout.startswith("prompt-1, run told")
    assert "five" in told.stdout


@pytest.mark.parametrize(
    ("identity", "marked"),
    [("cand-bad", 1), ("crit-good", 1), ("pair-made", 2), ("pref-", 2), ("prompt-1", 0)],
)
def test_the_row_that_was_asked_for_is_marked(call, identity, marked):
    assert call("show", identity).stdout.count("▶") == marked


def test_a_checkpoint_is_shown_with_what_it_was_trained_on_and_its_numbers(call):
    told = call("show", M1[:6], width=120)
    assert told.exit_code == 0, told.stderr
    assert told.stdout.startswith("M_1, run told")
    for words in (f"parent {M0}", "recipe rlrf, 7 steps", "loss 0.5", f"path checkpoints/{M1}"):
        assert words in told.stdout
    assert "1 pairs by success_vs_failure: task math, refinement" in told.stdout
    line = next(x for x in told.stdout.splitlines() if "math_accuracy" in x)
    assert line.split()[3:5] == ["0.333", "0.667"]
    first = call("show", M0)
    assert "trained on\nnothing that this run has stored" in first.stdout


def test_the_latest_run_that_has_the_id_is_meant_unless_one_is_named(call):
    assert json.loads(call("show", "prompt-1", "--json").stdout)["run"] == "told"
    older = json.loads(call("show", "prompt-1", "--run", "older", "--json").stdout)
    assert older["run"] == "older"
    assert older["candidates"] == []


@pytest.mark.parametrize(
    ("identity", "told"),
    [
        ("cand-nobody", "id 'cand-nobody' is not in any run"),
        ("cand-g", "13 ids begin with 'cand-g', such as cand-"),
        ("", "the id is empty"),
        ("\x1b[2J", "is not in any run"),
    ],
)
def test_an_id_that_names_nothing_or_too_much_is_refused(call, identity, told):
    refused = call("show", identity)
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert "\x1b" not in refused.stderr
    assert told in " ".join(refused.stderr.split())


def test_one_iteration_can_be_shown_alone(call):
    asked = json.loads(call("show", "prompt-10", "--iteration", "1", "--json").stdout)
    assert [row["iteration"] for row in asked["candidates"]] == [1]


# what is told


def test_json_holds_every_row_and_why(call):
    document = json.loads(call("show", "pair-made", "--json").stdout)
    assert document["asked"] == {"kind": "pair", "id": "pair-made", "prompt_id": "prompt-1"}
    assert [row["candidate_id"] for row in document["candidates"]] == [
        "cand-good",
        "cand-bad",
        "cand-better",
    ]
    assert document["pairs"][0]["pair_id"] == "pair-made"
    assert document["why"]["pair-made"] == (
        "rule success_vs_failure, rank 0 (1 positive, highest rewards first), margin +1.250 "
        "(1.500 - 0.250); chosen for 1 on all rated aspects (3); rejected, drawn at random from "
        "the negatives, for Completeness -1, Readability 0"
    )
    assert document["why"]["iteration 1, success_vs_failure"].endswith("paired, 1 made")


def test_candidates_can_be_had_as_rows(call):
    lines = call("show", "prompt-1", "--format", "jsonl").stdout.splitlines()
    rows = {row["candidate_id"]: row for row in map(json.loads, lines)}
    assert rows["cand-better"]["chosen_of"] == ["pair-made"]
    assert rows["cand-bad"]["reward"] == 0.25
    assert [a["rating"] for a in rows["cand-good"]["aspects"]] == [1, 1, 0]
    assert call("show", "prompt-1", "--format", "csv", "--json").exit_code == 2


def test_a_preference_is_told_on_both_sides(call):
    told = call("show", "pref-made", width=200).stdout
    assert "→ preference pref-made of people: preferred to cand-bad" in told
    assert "→ preference pref-made of people: less liked than cand-good" in told


def test_a_wide_terminal_has_the_critique_beside_the_text(call):
    wide = call("show", "cand-good", width=160).stdout.splitlines()
    assert any("The answer is five." in line and "█ Comprehension 1" in line for line in wide)
    narrow = call("show", "cand-good", width=80).stdout.splitlines()
    assert not any("The answer is five." in line and "Comprehension" in line for line in narrow)
    assert any("▅ Readability 0" in line for line in narrow)


def test_a_refinement_shows_what_it_changed(call):
    assert "The {+right +}answer is five." in call("show", "prompt-1").stdout


def test_a_prompt_without_a_pair_says_what_is_missing(call):
    told = " ".join(call("show", "prompt-2", width=200).stdout.split())
    assert (
        "iteration 1, rule success_vs_failure: no_positive, 0 made: no candidate has 1 on all "
        "rated aspects: the best, cand-fair, has 2 of 3 (Completeness 0)"
    ) in told


# why not

EMPTY = replace(GOOD, candidate_id="cand-empty", text=" ")
CUT = replace(GOOD, candidate_id="cand-cut", finish_reason="length")


@pytest.mark.parametrize(
    ("outcome", "rule", "candidates", "critiques", "words"),
    [
        ("no_candidates", "success", [], [], "the prompt has no candidates"),
        ("none_usable", "success", [EMPTY, CUT], [], "(1 empty, 1 length)"),
        (
            "none_rated",
            "success",
            [GOOD],
            [critique(GOOD)],
            "none of 1 usable candidates has ratings (1 no_dictionary)",
        ),
        ("none_rated", "success", [GOOD], [], "has ratings (no critique)"),
        ("none_rated", "top_reward", [GOOD], [], "none of 1 usable candidates has a reward"),
        ("no_positive", "success", [GOOD], [critique(GOOD, 1, 0)], "1 of 2 (Completeness 0)"),
        ("no_positive", "success", [GOOD], [critique(GOOD, None)], "0 of 0"),
        (
            "no_negative",
            "success_vs_failure",
            [GOOD],
            [critique(GOOD, 1)],
            "none of 1 usable candidates has a rating of 0 or -1",
        ),
        ("no_negative", "top_reward", [GOOD], [], "there is nothing to reject"),
        ("all_identical", "success_vs_failure", [GOOD], [], "have the same text"),
    ],
)
def test_each_outcome_has_its_sentence(outcome, rule, candidates, critiques, words):
    row = made(PAIRED, outcome, rule=rule)
    told = why_yield(story(candidates=candidates, critiques=critiques, yields=[row]), row)
    assert told.startswith(f"iteration 1, rule {rule}: {outcome}, 0 made: ")
    assert words in told


def test_a_pair_by_reward_says_so():
    pair = replace(MADE_PAIR, rule="top_reward", chosen_ratings=(), rejected_ratings=())
    assert why_pair(story(candidates=[GOOD, BAD], pairs=[pair]), pair) == (
        "rule top_reward, rank 0 (highest rewards first), margin +1.250 (1.500 - 0.250); chosen "
        "for its reward alone; rejected, drawn at random from the rest, for its reward alone"
    )


def test_a_pair_without_rewards_has_no_margin():
    pair = replace(MADE_PAIR, rejected_reward=None)
    assert "no margin: a reward is missing" in why_pair(story(pairs=[pair]), pair)


# hostile text


@given(st.text())
def test_hostile_text_is_harmless_wherever_it_stands(text):
    asked = replace(PAIRED, task=text, reference=text, source=text)
    answer = candidate(f"x{text}", asked, text, finish_reason="length")
    said = replace(critique(answer, 1), text=text)
    told = replace(
        story(candidates=[answer], critiques=[said], rewards=[reward(answer, 1.0)]), prompt=asked
    )
    page = story_page(told)
    shown = page_text(page)
    assert all(c == "\n" or unicodedata.category(c) not in HIDDEN for c in shown)
    html = page_html(page)
    assert all(c == "\n" or unicodedata.category(c) not in HIDDEN for c in html)
    assert "<script" not in html


def test_hostile_answers_are_shown_as_what_they_are(call):
    told = call("show", BAD.candidate_id, width=120)
    assert "\x1b" not in told.stdout
    assert "\u202e" not in told.stdout
    assert "\\u{1b}[2J\\u{202e}<script>alert(1)</script>[bold red]" in told.stdout


def test_html_escapes_what_a_model_wrote():
    html = page_html(story_page(story(candidates=[BAD], critiques=[critique(BAD, -1)])))
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert HOSTILE not in html


def test_changed_words_are_marked_in_html():
    parent = candidate("a", LACKING, "It is 4.")
    child = candidate("b", LACKING, "It is 5.", kind="refinement", parent_id="cand-a")
    html = page_html(story_page(story(candidates=[parent, child])))
    assert "<del>4</del><ins>5</ins>" in html


def test_a_pair_of_two_candidates_marks_both():
    asked = Found(kind="pair", id="pair-made", prompt_id="prompt-1")
    pair: Pair = replace(MADE_PAIR, chosen_id=GOOD.candidate_id)
    told = replace(story(candidates=[GOOD, BAD, FAIR], pairs=[pair]), asked=asked)
    assert [box.marked for box in story_page(told).sections[1].boxes] == [True, True, False]


# pairs that annotators made


def compared(preferred="first", **fields):
    """The story of a prompt whose two answers were compared."""
    row = replace(PREFERENCE, preferred=preferred, **fields)
    pair = replace(PAIR, rule="preferred", chosen_reward=None, chosen_ratings=())
    others = (
        "critiques",
        "rewards",
        "grades",
        "breakdowns",
        "claims",
        "demonstrations",
        "yields",
        "breakdowns",
        "claims",
        "scores",
        "checkpoints",
        "derived",
    )
    lists = {name: [] for name in others} | {"preferences": [row], "pairs": [pair]}
    two = [replace(CANDIDATE, candidate_id=f"cand-{n}") for n in (1, 2)]
    asked = Found(id="prompt-1", kind="prompt", prompt_id="prompt-1")
    return Story(run="a", asked=asked, prompt=PROMPT, candidates=two, **lists)


def test_a_pair_is_told_by_whom_its_one_side_was_preferred():
    story = compared()
    told = why_pair(story, story.pairs[0])
    assert told == "rule preferred; chosen by human:ada (pref-1), shown in the other order"


def test_a_pair_that_noise_made_says_so():
    story = compared(flipped=True)
    assert "by a coin in place of human:ada" in why_pair(story, story.pairs[0])


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("not_compared", "no two whole answers"),
        ("unread", "no annotator's verdict"),
        ("tied", "no annotator preferred either"),
    ],
)
def test_a_prompt_without_a_preferred_answer_says_why(outcome, said):
    row = replace(YIELD, rule="preferred", outcome=outcome, made=0)
    assert said in why_yield(compared(), row)
