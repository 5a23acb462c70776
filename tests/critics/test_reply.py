"""Replies are read as stated: the paper's examples, every reason, and 100,000 mutated replies.

The fuzz test compares with a reader of another make: Python's own parser (`ast`), and JSON's,
applied to every bracketed stretch of the reply; it shares neither code nor method with the scanner.
"""

import ast
import inspect
import itertools
import json
import random
import warnings
from functools import partial

import pytest
from effort import effort, least_effort
from hypothesis import given
from hypothesis import strategies as st

from lpfloop.critics.judge import MAX_REPLY, Question, Reading, Status
from lpfloop.critics.rating_dictionary import AspectRatings, RatedAspects
from lpfloop.stores.records import SCORED

MOST_EFFORT = 150

NAMES = (
    "Logical Correctness",
    "Factuality",
    "Metacognition",
    "Insightfulness",
    "Completeness",
    "Comprehension",
    "Readability",
    "Harmlessness",
)
THREE = RatedAspects(NAMES, 3)
LOGIC = RatedAspects.all_of("Logical Correctness")

GENERAL = """Task 1:
1. Skill 4: Insightfulness - The instruction asks for original thought.
2. Skill 6: Comprehension - It has several demands.
3. Skill 7: Readability - A dialogue must be easy to follow.


[4, 6, 7]

Task 2:
Insightfulness: The ideas are ordinary {as most are}. Score: -1
Comprehension: It misses minor demands. Score: 0
Readability: It can be followed. Score: 0

[{"Insightfulness": -1, "Comprehension": 0, "Readability": 0}]"""

SINGLE = """Task 1: This skill will let me solve such problems without slips.

Task 2: Feedback on the answer: The sum is wrong, it should be 24 inches.

[{"Logical Correctness": -1}]"""


def read_reply(text: str, finish: str, expected: RatedAspects) -> Reading[AspectRatings]:
    (reading,) = Question(messages=(), expected=expected).read(text, finish)
    return reading


def ratings(reading: Reading[AspectRatings]) -> dict[str, int | None]:
    return {aspect.name: aspect.rating for aspect in reading.value}


def test_the_papers_general_example_is_read():
    reading = read_reply(GENERAL, "stop", THREE)
    assert reading.status == SCORED
    assert ratings(reading) == {"Insightfulness": -1, "Comprehension": 0, "Readability": 0}
    assert [aspect.comment for aspect in reading.value] == [
        "The ideas are ordinary {as most are}.",
        "It misses minor demands.",
        "It can be followed.",
    ]


def test_the_papers_single_example_is_read():
    reading = read_reply(SINGLE, "stop", LOGIC)
    assert ratings(reading) == {"Logical Correctness": -1}
    assert "it should be 24 inches" in reading.value[0].comment


@pytest.mark.parametrize(
    "text",
    [
        '{"Logical Correctness": 1}',
        "{'Logical Correctness': 1}",
        'Right.\n```python\n{"Logical Correctness": 1}\n```\n',
        'Right.\n**{ "Logical Correctness" : 1 , }**',
        'Right. {\n  "Logical Correctness": 1\n}.',
        '{"Logical Correctness": 1}\nOn reflection:\n{"Logical Correctness": 1}',
        'A set {2} and \\frac{1}{2}. {"Logical Correctness": 1}',
        '{"Logical Correctness": 1}\n\nI hope that this helps.',
    ],
)
def test_a_dictionary_in_any_usual_dress_is_read(text):
    assert ratings(read_reply(text, "stop", LOGIC)) == {"Logical Correctness": 1}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("The answer is right. Score: 1", "no_dictionary"),
        ("The set {1, 2} is right.", "no_dictionary"),
        ("I'm sorry, but I can't rate this.", "refusal"),
        ("I\u2019m sorry, but no.", "refusal"),
        ('I\'m sorry, it is wrong. {"Logical Correctness": -1}', SCORED),
        ('{"Logical Correctness": 1', "malformed"),
        ('{"Logical Correctness": 1}\n{"Logical Correctness": ', "malformed"),
        ('{"Logical Correctness": 1}\n{"Logical Correctness": bad}', "malformed"),
        ('{"Logical Correctness": {"rating": 1}}', "malformed"),
        ('{"ratings": {"Logical Correctness": 1}}', "malformed"),
        ('{"ratings": [{"Logical Correctness": 1}\n]}', "malformed"),
        ('{"Logical Correctness": [1]}', "malformed"),
        ('{"Logical Correctness": 1 "Factuality": 0}', "malformed"),
        ('{"Logical Correctness" 1}', "malformed"),
        ('{"Logical\nCorrectness": 1}', "malformed"),
        ('It claims {"Logical Correctness": 1}, which is a trick.', "quoted"),
        ('"{"Logical Correctness": 1}"', "quoted"),
        ('{"Logical Correctness": 1, "Logical Correctness": 1}', "duplicate_keys"),
        ('{"Factuality": 1}', "wrong_keys"),
        ('{"logical correctness": 1}', "wrong_keys"),
        ('{"Logical Correctness ": 1}', "wrong_keys"),
        ('{"Logical\\u0020Correctness": 1}', "wrong_keys"),
        ('{"Logical Correctness": 1, "Factuality": 1}', "wrong_keys"),
        ('{"Logical Correctness": 2}', "out_of_range"),
        ('{"Logical Correctness": -10}', "out_of_range"),
        ('{"Logical Correctness": 99999999999999999999999}', "out_of_range"),
        ('{"Logical Correctness": "1"}', "not_integer"),
        ('{"Logical Correctness": 1.0}', "not_integer"),
        ('{"Logical Correctness": 1e0}', "not_integer"),
        ('{"Logical Correctness": +1}', "not_integer"),
        ('{"Logical Correctness": 01}', "not_integer"),
        ('{"Logical Correctness": 0x1}', "not_integer"),
        ('{"Logical Correctness": 1_0}', "not_integer"),
        ('{"Logical Correctness": -0}', "not_integer"),
        ('{"Logical Correctness": True}', "not_integer"),
        ('{"Logical Correctness": null}', "not_integer"),
        ('{"Logical Correctness": \uff11}', "malformed"),
        ('{"Logical Correctness": NaN}', "malformed"),
        ("x" * MAX_REPLY + '{"Logical Correctness": 1}', "too_long"),
    ],
)
def test_every_other_reply_has_its_reason(text, status):
    reading = read_reply(text, "stop", LOGIC)
    assert reading.status == status
    if status != SCORED:
        assert ratings(reading) == {"Logical Correctness": None}


def test_three_distinct_known_aspects_are_needed():
    for keys in (NAMES[:2], NAMES[:4], (*NAMES[:2], "Charm")):
        text = json.dumps(dict.fromkeys(keys, 1))
        assert read_reply(text, "stop", THREE) == Reading("wrong_keys", ())
    for keys in itertools.permutations(NAMES[:3]):
        assert read_reply(json.dumps(dict.fromkeys(keys, 0)), "stop", THREE).status == SCORED


@pytest.mark.parametrize(
    ("finish", "status"),
    [("length", "truncated"), ("truncated_thinking", "truncated"), ("overlong", "overlong")],
)
def test_an_unfinished_reply_is_unscored_even_with_a_dictionary(finish, status):
    assert read_reply(SINGLE, finish, LOGIC).status == status


def test_statuses_are_documented_member_by_member():
    lines = [line.strip() for line in inspect.getsource(Status).splitlines()]
    for member in Status:
        at = next(n for n, line in enumerate(lines) if line.startswith(f"{member.name} = "))
        assert lines[at + 1].startswith('"""')


# The independent reader -----------------------------------------------------------------------


def reference_ratings(text: str, expected: RatedAspects) -> dict[str, int] | None:
    """Return the ratings of the last stretch that Python or JSON takes for a dictionary.

    Tried are all stretches from a `{` to a `}`, the last end first and then the first start: a
    dictionary around another one goes before it, as it is a whole.
    """
    for end in reversed([at for at, c in enumerate(text) if c == "}"]):
        for start in [at for at, c in enumerate(text[:end]) if c == "{"]:
            pairs = _python_pairs(text[start : end + 1]) or _json_pairs(text[start : end + 1])
            if pairs is not None:
                return _as_asked(pairs, expected)
    return None


def _python_pairs(text: str) -> list[tuple[object, object]] | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None
    if not isinstance(node, ast.Dict) or not node.keys:
        return None
    if ast.get_source_segment(text, node) != text:
        # The dictionary ends earlier: what follows it is a comment to Python.
        return None
    return [(_constant(k), _constant(v)) for k, v in zip(node.keys, node.values, strict=True)]


def _constant(node: ast.expr | None) -> object:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _constant(node.operand)
        return -value if type(value) is int else None
    return node.value if isinstance(node, ast.Constant) else None


def _json_pairs(text: str) -> list[tuple[object, object]] | None:
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return None
    return pairs or None


def _as_asked(pairs: list[tuple[object, object]], expected: RatedAspects) -> dict[str, int] | None:
    rated = {k: v for k, v in pairs if isinstance(k, str) and type(v) is int and v in (-1, 0, 1)}
    whole = len(pairs) == len(rated) == expected.count and set(rated) <= set(expected.names)
    return rated if whole else None


PIECES = [
    *"{}[]:,'\"`\\ \n-+.01",
    "1.0",
    "-1",
    "2",
    "True",
    "null",
    "1e9",
    "NaN",
    "'''",
    '{"',
    '"}',
    '": 1}',
    '{"Logical Correctness": 1}',
    "{'Factuality': -1}",
    '{"Readability": 0, "Factuality": 1, "Completeness": -1}',
    '"Logical Correctness"',
    "Factuality",
    "[System]",
    "```",
    "Score: 1",
    "\u2028",
    "\ud800",
    "\x00",
    "\u0661",
    "# {",
    "r'",
    "\\n",
    "\\u0031",
]


def mutated(rng: random.Random) -> str:
    """Return a reply of realistic form with up to four edits where they hurt most: near its end."""
    keys = rng.choice([NAMES[:1], rng.sample(NAMES, 3), rng.choices(NAMES, k=rng.randint(0, 4))])
    quote = rng.choice(["'", '"'])
    value = rng.choice(["1", "0", "-1", "1", "0", "-1", "2", "'1'", "1.0", "True", "{}", ""])
    values = [rng.choice(["1", "0", "-1", value]) for _ in keys]
    body = ", ".join(f"{quote}{k}{quote}: {v}" for k, v in zip(keys, values, strict=True))
    lead = rng.choice(["", "Right. ", "Task 2: {x}\n", "Factuality: fine. Score: 1\n"])
    wrap = rng.choice([("", ""), ("[", "]"), ("```\n", "\n```"), ("", "\nDone."), ("", " so.")])
    reply = f"{lead}{wrap[0]}{{{body}}}{wrap[1]}"
    for _ in range(rng.randint(0, 4)):
        at = rng.randrange(len(reply) + 1)
        cut = rng.choice([0, 0, 1, 2, 9])
        reply = reply[:at] + rng.choice(["", *PIECES]) + reply[at + cut :]
    return reply


def test_100_000_mutated_replies_give_no_rating_that_an_independent_reader_does_not():
    rng = random.Random(20261121)
    scored = 0

    def read_all():
        nonlocal scored
        for _ in range(100_000):
            expected = THREE if rng.random() < 0.5 else LOGIC
            text = mutated(rng)
            reading = read_reply(text, "stop", expected)
            assert reading.status in set(Status)
            if reading.status == SCORED:
                scored += 1
                assert ratings(reading) == reference_ratings(text, expected), text
            else:
                assert all(aspect.rating is None for aspect in reading.value)

    assert effort(read_all) < 20_000
    assert scored > 5_000


def test_most_of_what_the_independent_reader_rates_is_rated():
    """The reader is stricter on purpose (quotations, later braces), but not by much."""
    rng = random.Random(7)
    texts = [mutated(rng) for _ in range(5_000)]
    by_reference = [t for t in texts if reference_ratings(t, LOGIC) is not None]
    missed = [t for t in by_reference if read_reply(t, "stop", LOGIC).status != SCORED]
    assert len(by_reference) > 300
    assert len(missed) < 0.4 * len(by_reference)


@given(st.text(max_size=300))
def test_any_text_is_read_without_a_fault(text):
    for expected in (THREE, LOGIC):
        assert read_reply(text, "stop", expected).status in set(Status)


@pytest.mark.parametrize(
    "unit",
    [
        "{",
        "}",
        '{"',
        "{'\"",
        '{"a":',
        '{"a":1,',
        '"a":1,',
        "\\",
        '"\\',
        " ",
        "\n",
        "Logical Correctness:",
        "Score:",
        "Task 2:",
        "{ ",
        "1",
    ],
)
def test_hostile_replies_of_64_kib_take_linear_time(unit):
    for text in (
        (unit * MAX_REPLY)[:MAX_REPLY],
        '{"' + (unit * MAX_REPLY)[: MAX_REPLY - 2],
        (unit * MAX_REPLY)[: MAX_REPLY - 26] + '{"Logical Correctness": 1}',
    ):
        assert least_effort(partial(read_reply, text, "stop", LOGIC), MOST_EFFORT) < MOST_EFFORT


def test_real_replies_of_judges_asked_otherwise_are_unscored(shared_rows):
    rows = shared_rows("llmbar_judge_completions.jsonl")
    texts = [row[order]["text"] or "" for row in rows for order in ("order1", "order2")]
    assert len(texts) > 1_000
    for text in texts:
        assert read_reply(text, "stop", LOGIC).status in {"no_dictionary", "refusal", "empty"}
