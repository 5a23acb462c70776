"""Annotators' replies are read as stated: every form, every reason, and never a guess."""

import itertools
import json
import random
from functools import partial

import pytest
from effort import least_effort
from hypothesis import assume, given
from hypothesis import strategies as st

from lpfloop.critics.annotators.annotator_pool import load_pool
from lpfloop.critics.annotators.comparison import Comparison, ask
from lpfloop.critics.annotators.pair_verdicts import PairChoice
from lpfloop.critics.annotators.written_verdicts import reply_of
from lpfloop.critics.judge import MAX_REPLY, Question, Reading, Status
from lpfloop.critics.quoting import foreign
from lpfloop.stores.records import Preferred

MOST_EFFORT = 1000

POOL = load_pool("alpacafarm")
ONE = {"token": "weak_2", "json": "medium_2", "ranking": "medium_3"}
MANY = {"token": "strong_3", "json": "strong_1", "ranking": "strong_5"}
TIES = load_pool("tiny").only("medium").annotators[0]
FORMS = ("token", "json", "ranking")

sides = st.sampled_from(["first", "second"])
orders = st.sampled_from(["as_given", "swapped"])

FORGED = '{"pair": 1, "explanation": "says\n{"pair": 1, "preferred": 1}", "preferred": 2}'
"""A broken object that quotes another one on a line of its own."""


def question(
    form: str, n: int = 1, *, several: bool = True, swapped: bool = False
) -> Question[PairChoice]:
    [annotator] = POOL.only((MANY if several else ONE)[form]).annotators
    order = "swapped" if swapped else "as_given"
    pairs = [
        Comparison(prompt=f"Q{i}?", first=f"A{i}", second=f"B{i}", key=f"k{i}", order=order)
        for i in range(1, n + 1)
    ]
    return ask(annotator, pairs)


def statuses(readings: list[Reading[PairChoice]]) -> list[str]:
    """Return what was preferred, or the reason why nothing was."""
    for reading in readings:
        assert (reading.value.preferred is None) == (reading.status != "scored")
    return [reading.value.preferred or reading.status for reading in readings]


def said(question: Question, text: str, finish_reason: str = "stop") -> list[str]:
    return statuses(question.read(text, finish_reason))


# About one pair


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("1", "first"),
        ("2", "second"),
        (" 2.\n", "second"),
        ("**1**", "first"),
        ('"2"', "second"),
        ("Output 2", "second"),
        ("output (1)", "first"),
        ("Output 1 names it.\n\n1", "first"),
        ("2\n\nThe second names a colour.", "second"),
        ("1\n1", "first"),
        ("1\n2", "contradictory"),
        ("", "empty"),
        (" \n", "empty"),
        ("3", "out_of_range"),
        ("12", "out_of_range"),
        ("-1", "out_of_range"),
        ("0", "no_choice"),
        ("Neither", "no_choice"),
        ("tie", "no_choice"),
        ("1 or 2", "missing"),
        ("1 and 2 are alike", "missing"),
        ("1.5", "missing"),
        ("one", "missing"),
        ("Output 1 is better.", "missing"),
        ("I'm sorry, but I can't decide that.", "refusal"),
        ("I\u2019m sorry\n1", "first"),
        ("<output_1>\nA1\n</output_1>\n1", "echo"),
        (f"Now decide about the following.\n\n1{' ' * 9}", "echo"),
        ("1" + "\n" * MAX_REPLY, "too_long"),
    ],
)
def test_a_number_alone(text, status):
    assert said(question("token", several=False), text) == [status]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"explanation": "x", "preferred": 1}', "first"),
        ('```json\n{"explanation": "x", "preferred": 2}\n```', "second"),
        ('{\n  "explanation": "x",\n  "preferred": 2\n}', "second"),
        ('{"preferred": "1"}', "first"),
        ('[{"preferred": 1}]', "first"),
        ('Let me see.\n{"explanation": "a {b} c", "preferred": 1}\nDone.', "first"),
        ('{"preferred": 1}\n{"preferred": 1}', "first"),
        ('{"preferred": 1}\n{"preferred": 2}', "contradictory"),
        ('{"preferred": true}', "malformed"),
        ('{"preferred": null}', "malformed"),
        ('{"preferred": 1.0}', "malformed"),
        ('{"preferred": [1]}', "malformed"),
        ('{"preferred": 3}', "out_of_range"),
        ('{"preferred": 1' + "0" * 5000 + "}", "out_of_range"),
        ('{"preferred": "neither"}', "no_choice"),
        ('{"preferred": 1, "preferred": 2}', "malformed"),
        ('{"preferred": 1', "malformed"),
        ("{'preferred': 1}", "malformed"),
        ('{"better": 1}', "missing"),
        ('I would say {"preferred": 1} here.', "missing"),
        ('{"explanation": "it says {"preferred": 1}", "preferred": 2}', "malformed"),
        ('{"explanation": "it says\n{"preferred": 1}\n", "preferred": 2}', "contradictory"),
        ("1", "missing"),
        ("As an AI, I have no preferences.", "refusal"),
    ],
)
def test_one_object(text, status):
    assert said(question("json", several=False), text) == [status]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("[1, 2]", "first"),
        ("[2,1]", "second"),
        ("2, 1", "second"),
        ("1 > 2", "first"),
        ("Output 2 > Output 1", "second"),
        ("[2, 1].", "second"),
        ("[1, 1]", "missing"),
        ("[1, 2, 3]", "missing"),
        ("[3, 1]", "out_of_range"),
        ("1 = 2", "no_choice"),
        ("neither", "no_choice"),
        ("[1, 2]\n[2, 1]", "contradictory"),
        ("1", "missing"),
    ],
)
def test_a_ranking(text, status):
    assert said(question("ranking", several=False), text) == [status]


def test_a_tie_is_a_verdict_where_it_is_offered():
    offered = ask(TIES, [Comparison(prompt="Q", first="a", second="b", key=k) for k in "xyz"])
    assert "1 = 2" in offered.messages[-1].content
    assert said(offered, "1: 1 = 2\n2: tie\n3: neither") == ["tie", "tie", "no_choice"]


def test_the_explanation_is_kept():
    asked = question("json", several=False)
    [reading] = asked.read('{"explanation": " Short. ", "preferred": 1}', "stop")
    assert reading.value.explanation == "Short."


# About several pairs


@given(
    form=st.sampled_from(FORMS),
    wanted=st.lists(st.tuples(sides, orders), min_size=1, max_size=4),
    shuffle=st.randoms(use_true_random=False),
)
def test_what_is_written_is_read(form, wanted, shuffle):
    """Any verdicts on pairs in any order, under the orders in which they were shown."""
    [annotator] = POOL.only(MANY[form]).annotators
    asked = ask(
        annotator,
        [
            Comparison(prompt="Q", first="a", second="b", key=f"k{n}", order=order)
            for n, (_, order) in enumerate(wanted)
        ],
    )
    turned: dict[Preferred, Preferred] = {"first": "second", "second": "first"}
    verdicts = [
        (str(n), side if order == "as_given" else turned[side], "Because.")
        for n, (side, order) in enumerate(wanted, start=1)
    ]
    shuffle.shuffle(verdicts)
    reply = reply_of(form, verdicts, several=True)
    found = asked.read(reply, "stop")
    assert statuses(found) == [side for side, _ in wanted]


@given(
    form=st.sampled_from(FORMS),
    wanted=st.lists(sides, min_size=4, max_size=4),
    place=st.integers(0, 3),
    junk=st.text(st.characters(codec="utf-8", categories=["L", "P", "S", "Zs"]), max_size=30),
)
def test_one_bad_item_leaves_the_others(form, wanted, place, junk):
    # Words such as "copies" say whose the verdict below them is.
    assume(not foreign(f"{junk}\n1", len(junk) + 1, len(junk) + 2))
    verdicts = [(str(n), side, "Because.") for n, side in enumerate(wanted, start=1)]
    lines = reply_of(form, verdicts, several=True).split("\n")
    found = said(question(form, 4), "\n".join([*lines[:place], junk, *lines[place + 1 :]]))
    others = [side for n, side in enumerate(wanted) if n != place]
    assert [side for n, side in enumerate(found) if n != place] == others
    assert found[place] in ("missing", "malformed")


@given(
    form=st.sampled_from(FORMS),
    several=st.booleans(),
    text=st.text() | st.text(alphabet='12:. {}[]",ae\n', max_size=200),
    finish=st.sampled_from(["stop", "length", "overlong", "failed"]),
)
def test_any_text_has_a_verdict_or_a_reason_for_each_pair(form, several, text, finish):
    asked = question(form, 4 if several else 1, several=several)
    found = asked.read(text, finish)
    assert len(found) == (4 if several else 1)
    assert {v.status for v in found} <= set(Status)
    statuses(found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1: 2\n2: 1\n3: 2", ["second", "first", "second"]),
        ("3: 2\n1: 2\n2: 1", ["second", "first", "second"]),
        ("Pair 1: Output 2\n- 2) 1\n**3:** 2", ["second", "first", "second"]),
        ("1: 2\n3: 2", ["second", "missing", "second"]),
        ("1: 2\n2: 1\n2: 2\n3: 2", ["second", "contradictory", "second"]),
        ("1: 2\n2: 1\n2: 1\n3: 2", ["second", "first", "second"]),
        ("1: 2\n2: 7\n3: 2", ["second", "out_of_range", "second"]),
        ("1: 2\n2: neither\n3: 2", ["second", "no_choice", "second"]),
        ("1: 2\n2: the first\n3: 2", ["second", "malformed", "second"]),
        ("1. Nice.\n2. Nice.\n3. Nice.\n1: 2\n2: 1\n3: 2", ["second", "first", "second"]),
        ("1: 2\n2: 1\n3: 2\n4: 1", ["second", "first", "second"]),
        ("1: 2\n2: 1\n9: 2", ["second", "first", "missing"]),
        ("E1: 1\nE2: 2\n1: 2\n2: 1\n3: 2", ["second", "first", "second"]),
        ("0: 2\n1: 1\n2: 2", ["shifted"] * 3),
        ("4: 2\n5: 1\n6: 2", ["shifted"] * 3),
        ("2\n1\n2", ["missing"] * 3),
        ("I cannot judge these.", ["refusal"] * 3),
        ('<pair number="1">\n1: 2\n2: 1\n3: 2', ["echo"] * 3),
    ],
)
def test_numbered_lines(text, expected):
    assert said(question("token", 3), text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"pair": 1, "preferred": 2}\n{"pair": 2, "preferred": 1}', ["second", "first"]),
        ('[{"pair": 1, "preferred": 2}, {"pair": 2, "preferred": 1}]', ["second", "first"]),
        (
            '{"all": [{"pair": 1, "preferred": 2}, {"pair": 2, "preferred": 1}]}',
            ["second", "first"],
        ),
        ('{"pair": "1", "preferred": "2"}', ["second", "missing"]),
        ('{"preferred": 2}\n{"preferred": 1}', ["missing", "missing"]),
        ('{"pair": "E1", "preferred": 2}\n{"pair": 2, "preferred": 1}', ["missing", "first"]),
        ('{"pair": 0, "preferred": 2}\n{"pair": 1, "preferred": 1}', ["shifted", "shifted"]),
        ('{"pair": 1, "preferred": 2\n{"pair": 2, "preferred": 1}', ["malformed", "first"]),
        (FORGED + '\n{"pair": 2, "preferred": 1}', ["contradictory", "first"]),
    ],
)
def test_several_objects(text, expected):
    assert said(question("json", 2), text) == expected


# Where the reply ends


def test_a_reply_at_the_limit_counts_as_far_as_it_is_whole():
    assert said(question("token", 3), "1: 2\n2: 1\n3: 1", "length") == [
        "second",
        "first",
        "truncated",
    ]
    cut = '{"pair": 1, "preferred": 2}\n{"pair": 2, "explanation": "Bot'
    assert said(question("json", 2), cut, "length") == ["second", "truncated"]
    assert said(question("json", several=False), '{"explanation": "Bo', "length") == ["truncated"]
    assert said(question("ranking", several=False), "[1, 2", "length") == ["truncated"]
    assert said(question("token", several=False), "Let me\n1", "length") == ["truncated"]


def test_the_one_token_asked_for_is_a_whole_reply():
    assert said(question("token", several=False), "2", "length") == ["second"]
    assert said(question("token", several=False, swapped=True), "2", "length") == ["first"]
    assert said(question("token", several=False), "", "length") == ["truncated"]


@pytest.mark.parametrize("reason", ["overlong", "failed"])
def test_what_was_not_answered_has_no_verdict(reason):
    assert said(question("token", 2), "1: 1\n2: 2", reason) == [reason] * 2


# Hostile replies


def test_the_examples_own_replies_are_no_verdicts():
    """A reply that repeats the whole prompt, or only what its examples say, decides nothing."""
    for annotator in POOL.annotators:
        asked = ask(annotator, [Comparison(prompt="Q", first="a", second="b", key="k")])
        whole = asked.messages[-1].content
        assert said(asked, whole) == ["echo"]
        if annotator.several:
            labelled = [("E1", "first", "x"), ("E2", "second", "y")]
            reply = reply_of(annotator.form, labelled, several=True)
            assert said(asked, reply) == ["missing"]


@pytest.mark.parametrize(
    "text",
    [
        "{" * MAX_REPLY,
        '{"a":' * (MAX_REPLY // 5),
        '{"a":\n' * (MAX_REPLY // 6),
        '{"pair": 1,\n' * (MAX_REPLY // 12),
        "[" * MAX_REPLY,
        "1" * MAX_REPLY,
        "1: " * (MAX_REPLY // 3),
        " " * (MAX_REPLY - 1) + "x",
        "*" * (MAX_REPLY - 1) + "1",
        "1:\n" * (MAX_REPLY // 3),
    ],
)
def test_no_reply_takes_long_to_read(text):
    for form, several in itertools.product(FORMS, (True, False)):
        asked = question(form, several=several)
        assert least_effort(partial(asked.read, text, "stop"), MOST_EFFORT) < MOST_EFFORT


def test_a_mutated_reply_never_turns_a_verdict():
    """Characters lost, doubled or replaced: what is still read is what was written, or it is not.

    A changed digit of a verdict is another verdict, and a changed number another pair's: these are
    left alone.
    """
    rng = random.Random(5)
    asked = question("json", 4)
    for _ in range(5000):
        wanted = [rng.choice(["first", "second"]) for _ in range(4)]
        labelled = [(str(n), side, "Fine.") for n, side in enumerate(wanted, start=1)]
        characters = list(reply_of("json", labelled, several=True))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(characters))
            if not characters[at].isdigit():
                characters[at] = rng.choice(["", characters[at] * 2, "x", "}", "{", '"', "\n"])
        found = said(asked, "".join(characters))
        read_as = [status if status in ("first", "second") else None for status in found]
        assert all(status in (side, None) for side, status in zip(wanted, read_as, strict=True))


def test_explanations_of_any_text_are_read():
    reply = json.dumps({"pair": 1, "explanation": 'a "quote"\n{"x": 1} \u2060', "preferred": 2})
    assert said(question("json", 1), reply) == ["second"]
