"""IFEval's families of instructions, each with answers that follow it and others."""

import json
import re
import sys
from dataclasses import replace

import pytest
import rows

from lpfloop.configs.schema import ConfigError
from lpfloop.critics.checks import (
    FAMILIES,
    fulfils,
    fulfils_loosely,
    require_deciders,
    valid_check,
)
from lpfloop.critics.verify import Verifier, VerifierCritic
from lpfloop.stores.records import Check, Prompt

ENGLISH = "this is a plain answer, which is written in the language of the question."
JSON_LINES = '```json\n{"a": [1, 2], "a": null}\n```'


def demand(kind: str, **parameters: object) -> Check:
    return valid_check(kind, json.dumps(parameters))


# fmt: off
EXAMPLES = [
    (demand("keywords:existence", keywords=["Cat", "c++"]), ["The CATS learn c++."],
     ["The cats learn C.", "concatenate ccc"]),
    (demand("keywords:frequency", keyword="tea", frequency=2, relation="at least"),
     ["Tea and steam."], ["One tea."]),
    (demand("keywords:frequency", keyword="tea", frequency=2, relation="less than"), ["One tea."],
     ["Tea and steam."]),
    (demand("keywords:forbidden_words", forbidden_words=["rock", ".net"]),
     ["Rocks and asp.net", "xnet"], ["A ROCK.", "It is .NET"]),
    (demand("keywords:letter_frequency", letter="O", let_frequency=3, let_relation="at least"),
     ["Oo, so?"], ["No, no"]),
    (demand("language:response_language", language="fr"),
     ["Je voudrais bien une tasse de thé, s'il vous plaît."], [ENGLISH, "12 345"]),
    (demand("length_constraints:number_sentences", num_sentences=3, relation="less than"),
     ["Dr. Lee met J. Smith at 3.50 p.m. today. Fine!", "One\n\ntwo\n\nthree\n\nfour"],
     ["A dog ran. It sat. It slept."]),
    (demand("length_constraints:number_sentences", num_sentences=2, relation="at least"),
     ['"Stop!" he said. "Why?"', "1. Buy milk\n2. Drink it"], ["Wait... what", "e.g. this one."]),
    (demand("length_constraints:number_paragraphs", num_paragraphs=2),
     ["One\n***\nTwo", "***\nOne\n\nstill\n***\nTwo\n***\n"],
     ["One\n\nTwo", "One\n***\n***\nTwo", "A\n***\nB\n***\nC"]),
    (demand("length_constraints:number_words", num_words=3, relation="at least"),
     ["well-read man", "a b c d"], ["two words", "— … !"]),
    (demand("length_constraints:nth_paragraph_first_word", num_paragraphs=2, nth_paragraph=2,
      first_word="Send"), ["Hello.\n\n'\"Send\" it' now", "Hello.\n\nsend. Now"],
     ["Hello.\n\nSending", "Send\n\nHello", "Hello.\n\nSend\n\nBye", "Hello. Send"]),
    (demand("detectable_content:number_placeholders", num_placeholders=2), ["[name], [a [b] c"],
     ["[name] and [\n]", "[[", "]["]),
    (demand("detectable_content:postscript", postscript_marker="P.P.S"),
     ["Bye.\np. p.s I forgot", "P.P.S. one"], ["P.S. one"]),
    (demand("detectable_format:number_bullet_lists", num_bullets=2),
     ["Two:\n * one\n- two", "* one\n\n\n\n* two\n**bold**"],
     ["* one", "- one\n- two\n- three", "1. one\n2. two"]),
    (demand("detectable_format:constrained_response"),
     ["My answer is maybe.", "Well. My answer is no. It is late."],
     ["my answer is no.", "My answer is no"]),
    (demand("detectable_format:number_highlighted_sections", num_highlights=2),
     ["*one* and *two*", "**one** and *two*"], ["**one**", "* * **", "*no\nline*"]),
    (demand("detectable_format:multiple_sections", section_spliter="Day (", num_sections=2),
     ["Day ( 1 walk Day (2 rest"], ["Day ( 1 walk", "Day one, Day two"]),
    (demand("detectable_format:json_format"), ["[1]", JSON_LINES, "```\n3\n```"],
     ["{a: 1}", "Here: {}", "[NaN]", "[" * 9_000, "1" * 9_000]),
    (demand("detectable_format:title"), ["<<A tale>>\nOnce.", "a <<<b>>> c"],
     ["<A tale>", "<<>>", "<< >>", "<<a\n>>", ">> <<"]),
    (demand("combination:two_responses"), ["One ****** two", "******\nOne ****** two ******"],
     ["One", "One ****** One", "a ****** b ****** c", "a ****** ****** b"]),
    (demand("combination:repeat_prompt", prompt_to_repeat="Say HI.\n"), ["\nsay hi. Hi!"],
     ["Sure: Say HI.", "Hi!"]),
    (demand("startend:end_checker", end_phrase="Good bye."), ['"So: good BYE."\n'],
     ["Good bye. Then", "Good bye"]),
    (demand("startend:quotation"), [' "Yes." '], ['"', "Yes.", "'Yes.'", '"Yes." said he']),
    (demand("change_case:capital_word_frequency", capital_frequency=4, capital_relation="at least"),
     ["I CANNOT GO", "DON'T STOP, NASA", "'ONE TWO' UP-TO-DATE (A)"],
     ["I Can Go Now", "ONE TWO-THREE"]),
    (demand("change_case:english_capital"), [ENGLISH.upper()], [ENGLISH, "JE NE PARLE PAS BIEN."]),
    (demand("change_case:english_lowercase"), [ENGLISH], ["It " + ENGLISH, "je ne parle pas."]),
    (demand("punctuation:no_comma"), ["One and two; three", "1、2"], ["One, two"]),
]
# fmt: on


def test_each_family_decides_as_ifeval_does():
    for check, met, unmet in EXAMPLES:
        for answer in met:
            assert fulfils(answer, check), answer
        for answer in [*unmet, "", " \n"]:
            assert not fulfils(answer, check), answer


def test_published_verdicts_are_met(shared_rows):
    verdicts = [
        (row["key"], kind, fulfils(row["response"], demand(kind, **given)), published)
        for row in shared_rows("ifeval_gpt4.jsonl")
        for kind, given, published in zip(
            row["instruction_id_list"],
            row["kwargs"],
            row["follow_instruction_list_strict"],
            strict=True,
        )
    ]
    assert len(verdicts) == 428
    assert {kind for _, kind, _, _ in verdicts} == set(FAMILIES)
    assert [verdict for verdict in verdicts if verdict[2] != verdict[3]] == []


def test_unclear_parameters_are_refused(subtests):
    for kind, argument, complaint in [
        ("keywords:existence", '{"keywords": []}', "keywords: "),
        ("keywords:existence", '{"keywords": ["a", " "]}', "keywords.1: "),
        ("keywords:existence", "", "the field 'keywords' is missing"),
        ("keywords:existence", "cat", "needs its parameters as a JSON object, not 'cat'"),
        ("punctuation:no_comma", '{"n": 1}', "unknown field 'n'"),
        ("startend:end_checker", '{"end_phrase": " "}', "end_phrase: "),
        ("language:response_language", '{"language": "French"}', "language: must be 'af', 'ar'"),
        (
            "keywords:letter_frequency",
            '{"letter": "ab", "let_frequency": 1, "let_relation": "at least"}',
            "letter: ",
        ),
        (
            "length_constraints:number_words",
            '{"num_words": 1.5, "relation": "at least"}',
            "num_words: must be a valid integer",
        ),
        (
            "length_constraints:number_words",
            '{"num_words": -1, "relation": "at least"}',
            "num_words: must be greater than or equal to 0",
        ),
        (
            "length_constraints:number_words",
            '{"num_words": 1, "relation": "at most"}',
            "relation: must be 'less than' or 'at least', not 'at most'",
        ),
    ]:
        with subtests.test(kind=kind), pytest.raises(ConfigError, match=re.escape(complaint)):
            valid_check(kind, argument)
    kind, given = "length_constraints:nth_paragraph_first_word", {"first_word": "a"}
    with pytest.raises(ConfigError, match="paragraph 3 of 2 does not exist"):
        demand(kind, num_paragraphs=2, nth_paragraph=3, **given)


def test_the_same_demand_is_the_same_check():
    plain = demand("keywords:frequency", keyword="tea", frequency=2, relation="at least")
    published = {"relation": "at least", "frequency": 2.0, "keyword": " tea", "language": None}
    assert demand("keywords:frequency", **published) == plain
    assert valid_check(plain.kind, plain.argument) == plain
    assert demand("punctuation:no_comma").argument == ""


def test_loosely_an_answer_may_be_wrapped(subtests):
    for answer, strict, loose in [
        ("Sure:\n- one\n- two", True, True),
        ("- Sure:\n- one\n- two", False, True),
        ("- one\n- two\n- Bye", False, True),
        ("- Sure:\n**- one**\n- two", True, True),
    ]:
        with subtests.test(answer=answer):
            check = demand("detectable_format:number_bullet_lists", num_bullets=2)
            assert fulfils(answer, check) == strict
            assert fulfils_loosely(answer, check) == loose


LARGE = 100_000
"""Letters of a hostile text; a backtracking expression takes thousands of times a linear scan."""


def test_hostile_answers_are_decided_at_once():
    """A quadratic reader would take longer than a unit test may."""
    for check, _, _ in EXAMPLES:
        if "language" not in check.kind and "change_case:english" not in check.kind:
            fulfils_loosely(f"x{'mr. *' * 4_000}y", check)
            assert not fulfils("", check)
    counted = demand("length_constraints:number_sentences", num_sentences=9**9, relation="at least")
    for part in ("a", "A. ", "\n", " ", "mr. ", '. "', "*", "[", "<<", "p.", "```", "-"):
        assert not fulfils(f"x{part * (LARGE // len(part))}y", counted), part


def test_without_langdetect(monkeypatch):
    monkeypatch.setitem(sys.modules, "langdetect", None)
    check = demand("language:response_language", language="fr")
    with pytest.raises(ConfigError, match="pip install 'langdetect>="):
        require_deciders([check])
    with pytest.raises(ConfigError, match="pip install 'langdetect>="):
        fulfils("Oui.", check)
    require_deciders([demand("punctuation:no_comma")])


def asked(*checks: Check) -> Prompt:
    return replace(rows.PROMPT, task="general", reference=None, checks=checks)


def test_four_accuracies(subtests):
    for answer, ratings, strict, loose in [
        ("no commas here", (1, 1), (1, 1), (1, 1)),
        ("Sure, look:\nno commas here", (-1, 1), (0, 0.5), (1, 1)),
        ("well, three words", (-1, 1), (0, 0.5), (0, 0.5)),
        ("a, b", (-1, -1), (0, 0), (0, 0)),
    ]:
        with subtests.test(answer=answer):
            words = demand("length_constraints:number_words", num_words=3, relation="at least")
            prompt = asked(demand("punctuation:no_comma"), words)
            with Verifier() as verifier:
                (verdict,) = verifier.verify([(prompt, answer)])
            assert dict(verdict.metrics) == {
                "general_fulfilled": strict[0],
                "checks_fulfilled": strict[1],
                "general_fulfilled_loose": loose[0],
                "checks_fulfilled_loose": loose[1],
            }
            rated = VerifierCritic(Verifier(), {}).read(prompt, verdict).value
            assert [(a.name, a.rating) for a in rated] == [
                (check.kind, rating) for check, rating in zip(prompt.checks, ratings, strict=True)
            ]
