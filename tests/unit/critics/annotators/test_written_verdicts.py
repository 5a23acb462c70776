"""lpfloop reads annotators' replies as stated: every form, every reason, and no guesses."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.critics.annotators.annotator_pool import load_pool
from lpfloop.critics.annotators.comparison import Comparison, ask
from lpfloop.critics.annotators.pair_verdicts import PairChoice, reply_of
from lpfloop.critics.judge import MAX_REPLY, Question, Reading
from lpfloop.stores.records import Preferred

POOL = load_pool("alpacafarm")
ONE = {"token": "weak_2", "json": "medium_2", "ranking": "medium_3"}
MANY = {"token": "strong_3", "json": "strong_1", "ranking": "strong_5"}
TIES = load_pool("tiny").only("medium").annotators[0]
FORMS = ("token", "json", "ranking")

sides = st.sampled_from(["first", "second"])
orders = st.sampled_from(["as_given", "swapped"])

FORGED = '{"pair": 1, "explanation": "says\n{"pair": 1, "preferred": 1}", "preferred": 2}'
"""A broken object that quotes another one on a separate line."""


def question(form: str, n: int = 1, *, several: bool = True) -> Question[PairChoice]:
    [annotator] = POOL.only((MANY if several else ONE)[form]).annotators
    pairs = [
        Comparison(prompt=f"Q{i}?", first=f"A{i}", second=f"B{i}", key=f"k{i}")
        for i in range(1, n + 1)
    ]
    return ask(annotator, pairs)


def statuses(readings: list[Reading[PairChoice]]) -> list[str]:
    """Return the preferred answers, or the statuses of replies without a verdict."""
    for reading in readings:
        assert (reading.value.preferred is None) == (reading.status != "scored")
    return [reading.value.preferred or reading.status for reading in readings]


def said(question: Question, text: str, finish_reason: str = "stop") -> list[str]:
    return statuses(question.read(text, finish_reason))


def test_a_number_alone(subtests):
    for text, status in [
        ("1", "first"),
        ("**1**", "first"),
        ("Output 2", "second"),
        ("1\n2", "contradictory"),
        ("", "empty"),
        ("3", "out_of_range"),
        ("0", "no_choice"),
        ("1 or 2", "missing"),
        ("I'm sorry, but I can't decide that.", "refusal"),
        ("I\u2019m sorry\n1", "first"),
        ("<output_1>\nA1\n</output_1>\n1", "echo"),
        ("1" + "\n" * MAX_REPLY, "too_long"),
    ]:
        with subtests.test(status=status):
            assert said(question("token", several=False), text) == [status]


def test_one_object(subtests):
    for text, status in [
        ('{"explanation": "x", "preferred": 1}', "first"),
        ('```json\n{"explanation": "x", "preferred": 2}\n```', "second"),
        ('{"preferred": "1"}', "first"),
        ('{"preferred": 1}\n{"preferred": 2}', "contradictory"),
        ('{"preferred": true}', "malformed"),
        ('{"preferred": 3}', "out_of_range"),
        ('{"preferred": 1', "malformed"),
        ('I would say {"preferred": 1} here.', "missing"),
        ('{"explanation": "it says {"preferred": 1}", "preferred": 2}', "malformed"),
        ('{"explanation": "it says\n{"preferred": 1}\n", "preferred": 2}', "contradictory"),
        ("As an AI, I have no preferences.", "refusal"),
    ]:
        with subtests.test(status=status):
            assert said(question("json", several=False), text) == [status]


def test_a_ranking(subtests):
    for text, status in [
        ("[1, 2]", "first"),
        ("1 > 2", "first"),
        ("Output 2 > Output 1", "second"),
        ("[1, 1]", "missing"),
        ("[1, 2, 3]", "missing"),
        ("[3, 1]", "out_of_range"),
        ("1 = 2", "no_choice"),
        ("[1, 2]\n[2, 1]", "contradictory"),
        ("1", "missing"),
    ]:
        with subtests.test(text=text):
            assert said(question("ranking", several=False), text) == [status]


def test_offered_tie_is_verdict():
    offered = ask(TIES, [Comparison(prompt="Q", first="a", second="b", key=k) for k in "xyz"])
    assert "1 = 2" in offered.messages[-1].content
    assert said(offered, "1: 1 = 2\n2: tie\n3: neither") == ["tie", "tie", "no_choice"]


@given(
    form=st.sampled_from(FORMS),
    wanted=st.lists(st.tuples(sides, orders), min_size=1, max_size=4),
    shuffle=st.randoms(use_true_random=False),
)
def test_roundtrip(form, wanted, shuffle):
    """Any verdicts on pairs in any order, and in both orders of the answers."""
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


def test_numbered_lines(subtests):
    for text, expected in [
        ("1: 2\n2: 1\n3: 2", ["second", "first", "second"]),
        ("3: 2\n1: 2\n2: 1", ["second", "first", "second"]),
        ("Pair 1: Output 2\n- 2) 1\n**3:** 2", ["second", "first", "second"]),
        ("1: 2\n2: 1\n2: 2\n3: 2", ["second", "contradictory", "second"]),
        ("1: 2\n2: 7\n3: 2", ["second", "out_of_range", "second"]),
        ("1: 2\n2: neither\n3: 2", ["second", "no_choice", "second"]),
        ("1. Nice.\n2. Nice.\n3. Nice.\n1: 2\n2: 1\n3: 2", ["second", "first", "second"]),
        ("0: 2\n1: 1\n2: 2", ["shifted"] * 3),
        ("2\n1\n2", ["missing"] * 3),
        ('<pair number="1">\n1: 2\n2: 1\n3: 2', ["echo"] * 3),
    ]:
        with subtests.test(text=text):
            assert said(question("token", 3), text) == expected


def test_several_objects():
    for text, expected in [
        ('{"pair": 1, "preferred": 2}\n{"pair": 2, "preferred": 1}', ["second", "first"]),
        ('[{"pair": 1, "preferred": 2}, {"pair": 2, "preferred": 1}]', ["second", "first"]),
        ('{"pair": "1", "preferred": "2"}', ["second", "missing"]),
        ('{"preferred": 2}\n{"preferred": 1}', ["missing", "missing"]),
        ('{"pair": "E1", "preferred": 2}\n{"pair": 2, "preferred": 1}', ["missing", "first"]),
        ('{"pair": 0, "preferred": 2}\n{"pair": 1, "preferred": 1}', ["shifted", "shifted"]),
        ('{"pair": 1, "preferred": 2\n{"pair": 2, "preferred": 1}', ["malformed", "first"]),
        (FORGED + '\n{"pair": 2, "preferred": 1}', ["contradictory", "first"]),
    ]:
        assert said(question("json", 2), text) == expected


def test_replies_cut_at_the_limit():
    cut = said(question("token", 3), "1: 2\n2: 1\n3: 1", "length")
    assert cut == ["second", "first", "truncated"]
    cut = '{"pair": 1, "preferred": 2}\n{"pair": 2, "explanation": "Bot'
    assert said(question("json", 2), cut, "length") == ["second", "truncated"]
    assert said(question("json", several=False), '{"explanation": "Bo', "length") == ["truncated"]
    assert said(question("ranking", several=False), "[1, 2", "length") == ["truncated"]
    assert said(question("token", several=False), "Let me\n1", "length") == ["truncated"]


def test_hostile_replies_are_read_at_once():
    """A quadratic reader would take longer than a unit test may."""
    units = ['{"a":\n', "[", "1", "1:\n"]
    for number, (unit, form) in enumerate(itertools.product(units, FORMS)):
        asked = question(form, several=number % 2 == 0)
        (reading, *_) = asked.read((unit * MAX_REPLY)[:MAX_REPLY], "stop")
        assert (reading.value.preferred is None) == (reading.status != "scored"), unit
