"""lpfloop reads replies as stated: the paper's examples, every reason, and mutated replies."""

import itertools
import json
import random

from hypothesis import given
from hypothesis import strategies as st

from lpfloop.critics.feedback import AspectRatings, RatedAspects, load_aspects
from lpfloop.critics.judge import MAX_REPLY, Question, Reading
from lpfloop.critics.status import Status
from lpfloop.stores.records import SCORED

NAMES = tuple(aspect.name for aspect in load_aspects("paper"))
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


def test_a_dictionary_in_any_usual_dress_is_read(subtests):
    for text in [
        '{"Logical Correctness": 1}',
        "{'Logical Correctness': 1}",
        'Right.\n```python\n{"Logical Correctness": 1}\n```\n',
        'Right.\n**{ "Logical Correctness" : 1 , }**',
        '{"Logical Correctness": 1}\nOn reflection:\n{"Logical Correctness": 1}',
        'A set {2} and \\frac{1}{2}. {"Logical Correctness": 1}',
        '{"Logical Correctness": 1}\n\nI hope that this helps.',
    ]:
        with subtests.test(text=text):
            assert ratings(read_reply(text, "stop", LOGIC)) == {"Logical Correctness": 1}


def test_every_other_reply_has_its_reason():
    for text, status in [
        ("", "empty"),
        ("The answer is right. Score: 1", "no_dictionary"),
        ("I'm sorry, but I can't rate this.", "refusal"),
        ('I\'m sorry, it is wrong. {"Logical Correctness": -1}', SCORED),
        ('{"Logical Correctness": 1}\n{"Logical Correctness": ', "malformed"),
        ('{"Logical Correctness": [1]}', "malformed"),
        ('{"Logical Correctness": 1 "Factuality": 0}', "malformed"),
        ('{"Logical\nCorrectness": 1}', "malformed"),
        ('It claims {"Logical Correctness": 1}, which is a trick.', "quoted"),
        ('{"Logical Correctness": 1, "Logical Correctness": 1}', "duplicate_keys"),
        ('{"Factuality": 1}', "wrong_keys"),
        ('{"logical correctness": 1}', "wrong_keys"),
        ('{"Logical\\u0020Correctness": 1}', "wrong_keys"),
        ('{"Logical Correctness": 2}', "out_of_range"),
        ('{"Logical Correctness": -10}', "out_of_range"),
        ('{"Logical Correctness": "1"}', "not_integer"),
        ('{"Logical Correctness": 1.0}', "not_integer"),
        ('{"Logical Correctness": +1}', "not_integer"),
        ('{"Logical Correctness": True}', "not_integer"),
        ('{"Logical Correctness": null}', "not_integer"),
        ('{"Logical Correctness": \uff11}', "malformed"),
        ('{"Logical Correctness": NaN}', "malformed"),
        ("x" * MAX_REPLY + '{"Logical Correctness": 1}', "too_long"),
    ]:
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


def test_unfinished_replies_are_unscored(subtests):
    for finish, status in [
        ("length", "truncated"),
        ("truncated_thinking", "truncated"),
        ("overlong", "overlong"),
    ]:
        with subtests.test(finish=finish):
            assert read_reply(SINGLE, finish, LOGIC).status == status


def test_a_mutated_reply_never_turns_a_rating():
    """Characters lost, doubled or replaced: a rating that can still be read has its old value."""
    rng, scored = random.Random(20261121), 0
    for _ in range(800):
        wanted = {name: rng.choice([-1, 0, 1]) for name in rng.sample(NAMES, 3)}
        characters = list(f"Right.\n{json.dumps(wanted)}\nDone.")
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(characters))
            if characters[at] not in "-01":
                characters[at] = rng.choice(["", characters[at] * 2, "}", "{", '"', "\n", "[", "#"])
        reading = read_reply("".join(characters), "stop", THREE)
        assert ratings(reading) in ({}, wanted)
        scored += reading.status == SCORED
    assert scored > 50


@given(st.text(max_size=300))
def test_any_text_is_read_without_a_fault(text):
    for expected in (THREE, LOGIC):
        assert read_reply(text, "stop", expected).status in set(Status)


def test_hostile_replies_are_read_at_once():
    """A quadratic reader would take longer than a unit test may."""
    for unit in ["{", '{"', '{"a":', '"a":1,', '"\\', "Logical Correctness:", "{ "]:
        for text in (
            '{"' + (unit * MAX_REPLY)[: MAX_REPLY - 2],
            (unit * MAX_REPLY)[: MAX_REPLY - 26] + '{"Logical Correctness": 1}',
        ):
            assert read_reply(text, "stop", LOGIC).status in set(Status), unit
