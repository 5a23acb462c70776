"""IFEval's families of instructions: each with answers that follow it and that do not."""

import json
import re
import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpfloop.configs.schema import ConfigError
from lpfloop.critics.checks import CHECKS, fulfils, fulfils_loosely, require_deciders, valid_check
from lpfloop.critics.ifeval.families import FAMILIES
from lpfloop.critics.ifeval.sentences import sentences_of
from lpfloop.critics.verify import Verifier, VerifierCritic
from lpfloop.stores.records import Check, Message, Prompt

ENGLISH = "this is a plain answer, which is written in the language of the question."
JSON_LINES = '```json\n{"a": [1, 2], "a": null}\n```'


def demand(kind: str, **parameters: object) -> Check:
    return valid_check(kind, json.dumps(parameters))


EXAMPLES = [
    (
        demand("keywords:existence", keywords=["Cat", "c++"]),
        ["The CATS learn c++."],
        ["The cats learn C.", "concatenate ccc"],
    ),
    (
        demand("keywords:frequency", keyword="tea", frequency=2, relation="at least"),
        ["Tea and steam."],
        ["One tea."],
    ),
    (
        demand("keywords:frequency", keyword="tea", frequency=2, relation="less than"),
        ["One tea."],
        ["Tea and steam."],
    ),
    (
        demand("keywords:forbidden_words", forbidden_words=["rock", ".net"]),
        ["Rocks and asp.net", "xnet"],
        ["A ROCK.", "It is .NET"],
    ),
    (
        demand("keywords:letter_frequency", letter="O", let_frequency=3, let_relation="at least"),
        ["Oo, so?"],
        ["No, no"],
    ),
    (
        demand("keywords:letter_frequency", letter="!", let_frequency=1, let_relation="less than"),
        ["Quiet."],
        ["Loud!"],
    ),
    (
        demand("language:response_language", language="fr"),
        ["Je voudrais bien une tasse de thé, s'il vous plaît."],
        [ENGLISH, "12 345"],
    ),
    (
        demand("length_constraints:number_sentences", num_sentences=3, relation="less than"),
        ["Dr. Lee met J. Smith at 3.50 p.m. today. Fine!", "One\n\ntwo\n\nthree\n\nfour"],
        ["A dog ran. It sat. It slept."],
    ),
    (
        demand("length_constraints:number_sentences", num_sentences=2, relation="at least"),
        ['"Stop!" he said. "Why?"', "1. Buy milk\n2. Drink it"],
        ["Wait... what", "e.g. this one."],
    ),
    (
        demand("length_constraints:number_paragraphs", num_paragraphs=2),
        ["One\n***\nTwo", "***\nOne\n\nstill\n***\nTwo\n***\n"],
        ["One\n\nTwo", "One\n***\n***\nTwo", "A\n***\nB\n***\nC"],
    ),
    (
        demand("length_constraints:number_words", num_words=3, relation="at least"),
        ["well-read man", "a b c d"],
        ["two words", "— … !"],
    ),
    (
        demand(
            "length_constraints:nth_paragraph_first_word",
            num_paragraphs=2,
            nth_paragraph=2,
            first_word="Send",
        ),
        ["Hello.\n\n'\"Send\" it' now", "Hello.\n\nsend. Now"],
        ["Hello.\n\nSending", "Send\n\nHello", "Hello.\n\nSend\n\nBye", "Hello. Send"],
    ),
    (
        demand("detectable_content:number_placeholders", num_placeholders=2),
        ["[name], [a [b] c"],
        ["[name] and [\n]", "[[", "]["],
    ),
    (
        demand("detectable_content:postscript", postscript_marker="P.P.S"),
        ["Bye.\np. p.s I forgot", "P.P.S. one"],
        ["P.S. one"],
    ),
    (
        demand("detectable_content:postscript", postscript_marker="N.B.*"),
        ["n.b.* this"],
        ["N.B. this"],
    ),
    (
        demand("detectable_format:number_bullet_lists", num_bullets=2),
        ["Two:\n * one\n- two", "* one\n\n\n\n* two\n**bold**"],
        ["* one", "- one\n- two\n- three", "1. one\n2. two"],
    ),
    (
        demand("detectable_format:constrained_response"),
        ["My answer is maybe.", "Well. My answer is no. It is late."],
        ["my answer is no.", "My answer is no"],
    ),
    (
        demand("detectable_format:number_highlighted_sections", num_highlights=2),
        ["*one* and *two*", "**one** and *two*"],
        ["**one**", "* * **", "*no\nline*"],
    ),
    (
        demand("detectable_format:multiple_sections", section_spliter="Day (", num_sections=2),
        ["Day ( 1 walk Day (2 rest"],
        ["Day ( 1 walk", "Day one, Day two"],
    ),
    (
        demand("detectable_format:json_format"),
        ["[1]", JSON_LINES, "```\n3\n```"],
        ["{a: 1}", "Here: {}", "[NaN]", "[" * 9_000, "1" * 9_000],
    ),
    (
        demand("detectable_format:title"),
        ["<<A tale>>\nOnce.", "a <<<b>>> c"],
        ["<A tale>", "<<>>", "<< >>", "<<a\n>>", ">> <<"],
    ),
    (
        demand("combination:two_responses"),
        ["One ****** two", "******\nOne ****** two ******"],
        ["One", "One ****** One", "a ****** b ****** c", "a ****** ****** b"],
    ),
    (
        demand("combination:repeat_prompt", prompt_to_repeat="Say HI.\n"),
        ["\nsay hi. Hi!"],
        ["Sure: Say HI.", "Hi!"],
    ),
    (
        demand("startend:end_checker", end_phrase="Good bye."),
        ['"So: good BYE."\n'],
        ["Good bye. Then", "Good bye"],
    ),
    (demand("startend:quotation"), [' "Yes." '], ['"', "Yes.", "'Yes.'", '"Yes." said he']),
    (
        demand(
            "change_case:capital_word_frequency", capital_frequency=4, capital_relation="at least"
        ),
        ["I CANNOT GO", "DON'T STOP, NASA", "'ONE TWO' UP-TO-DATE (A)"],
        ["I Can Go Now", "ONE TWO-THREE"],
    ),
    (demand("change_case:english_capital"), [ENGLISH.upper()], [ENGLISH, "JE NE PARLE PAS BIEN."]),
    (demand("change_case:english_lowercase"), [ENGLISH], ["It " + ENGLISH, "je ne parle pas."]),
    (demand("punctuation:no_comma"), ["One and two; three", "1、2"], ["One, two"]),
]


@pytest.mark.parametrize(("check", "met", "unmet"), EXAMPLES, ids=lambda c: getattr(c, "kind", ""))
def test_each_family_decides_as_ifeval_does(check, met, unmet):
    for answer in met:
        assert fulfils(answer, check), answer
    for answer in [*unmet, "", " \n"]:
        assert not fulfils(answer, check), answer


def test_every_family_has_an_example():
    assert {check.kind for check, _, _ in EXAMPLES} == set(FAMILIES)
    assert len(FAMILIES) == 25


def test_all_published_verdicts_on_real_responses_are_met(shared_rows):
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


def test_the_guide_lists_every_kind_and_shows_an_answer_to_each(root):
    page = (root / "docs" / "checks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*) \| [^|]* \| [^|]* \|$", page, re.MULTILINE)
    listed = [kind for row in rows for kind in re.findall(r"`([^`]*)`", row)]
    assert set(listed) >= {*CHECKS, *FAMILIES}
    (shown,) = re.findall(
        r"in `families.json`:\n\n```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL
    )
    checked = [(row["response"], check) for row in json.loads(shown) for check in row["checks"]]
    assert [check["kind"] for _, check in checked] == [kind for kind in listed if ":" in kind]
    for response, check in checked:
        assert fulfils(response, demand(check["kind"], **check.get("argument", {}))), check


@pytest.mark.parametrize(
    ("kind", "argument", "complaint"),
    [
        ("keywords:existence", '{"keywords": []}', "'keywords' must be a list of texts"),
        ("keywords:existence", '{"keywords": "cat"}', "'keywords' must be a list of texts"),
        ("keywords:existence", "", "lacks its parameter 'keywords'"),
        ("keywords:existence", "cat", "needs its parameters as a JSON object, not 'cat'"),
        ("keywords:existence", '{"keywords": ["a"], "n": 1}', "does not know 'n'; it takes keyw"),
        ("punctuation:no_comma", '{"n": 1}', "does not know 'n'; it takes no parameters"),
        ("startend:end_checker", '{"end_phrase": " "}', "'end_phrase' must be a text"),
        ("language:response_language", '{"language": "French"}', "the code of a language"),
        (
            "keywords:letter_frequency",
            '{"letter": "ab", "let_frequency": 1, "let_relation": "at least"}',
            "'letter' must be one letter, not \"ab\"",
        ),
        (
            "length_constraints:number_words",
            '{"num_words": 1.5, "relation": "at least"}',
            "'num_words' must be a whole number from 0, not 1.5",
        ),
        (
            "length_constraints:number_words",
            '{"num_words": 1, "relation": "at most"}',
            "'relation' must be 'less than' or 'at least', not \"at most\"",
        ),
        (
            "length_constraints:nth_paragraph_first_word",
            '{"num_paragraphs": 2, "nth_paragraph": 3, "first_word": "a"}',
            "there is no paragraph 3 of 2",
        ),
    ],
)
def test_parameters_that_demand_nothing_clear_are_refused(kind, argument, complaint):
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        valid_check(kind, argument)


def test_the_same_demand_is_the_same_check():
    plain = demand("keywords:frequency", keyword="tea", frequency=2, relation="at least")
    published = {"relation": "at least", "frequency": 2.0, "keyword": " tea", "language": None}
    assert demand("keywords:frequency", **published) == plain
    assert valid_check(plain.kind, plain.argument) == plain
    assert demand("punctuation:no_comma").argument == ""


@pytest.mark.parametrize(
    ("answer", "strict", "loose"),
    [
        ("Sure:\n- one\n- two", True, True),
        ("- Sure:\n- one\n- two", False, True),
        ("- one\n- two\n- Bye", False, True),
        ("- Sure\n- one\n- two\n- Bye", False, True),
        ("- Sure:\n**- one**\n- two", True, True),
        ("one", False, False),
    ],
)
def test_loosely_an_answer_may_be_wrapped(answer, strict, loose):
    check = demand("detectable_format:number_bullet_lists", num_bullets=2)
    assert fulfils(answer, check) == strict
    assert fulfils_loosely(answer, check) == loose


def test_loosely_nothing_left_follows_nothing():
    assert not fulfils_loosely("One, two", demand("punctuation:no_comma"))
    assert fulfils_loosely("**a**", demand("keywords:existence", keywords=["a"]))


@settings(max_examples=30)
@given(st.text(max_size=80), st.integers(0, 5))
def test_at_least_is_the_contrary_of_less_than(text, bound):
    answer = f"x{text}"
    for kind, name, relation, others in [
        ("length_constraints:number_sentences", "num_sentences", "relation", {}),
        ("length_constraints:number_words", "num_words", "relation", {}),
        ("keywords:frequency", "frequency", "relation", {"keyword": "x"}),
        ("keywords:letter_frequency", "let_frequency", "let_relation", {"letter": "x"}),
        ("change_case:capital_word_frequency", "capital_frequency", "capital_relation", {}),
    ]:
        least = demand(kind, **{name: bound, relation: "at least"}, **others)
        less = demand(kind, **{name: bound, relation: "less than"}, **others)
        assert fulfils(answer, least) != fulfils(answer, less)


@given(st.lists(st.sampled_from(["It rains.", "Why?", '"No!"', "We met Mr. Lee.", "(Well.)"])))
def test_sentences_are_counted_one_by_one(said):
    assert len(list(sentences_of(" ".join(said)))) == len(said)
    assert len(list(sentences_of("\n".join(said)))) == len(said)


@settings(max_examples=50)
@given(st.text(alphabet="ab .?!\"')*-[]1\nÄ“", max_size=40))
def test_any_text_is_decided(text):
    for check, _, _ in EXAMPLES:
        if "language" not in check.kind:
            fulfils_loosely(text, check)


HOSTILE = [
    "a",
    "A. ",
    "\n",
    " ",
    "mr. ",
    '. "',
    "'S ",
    "*",
    "* ",
    "[",
    "<<",
    "p.",
    "```",
    "a@",
    "-",
]
LARGE = 10**6
ATTEMPTS = 5
MOST_TIMES = 20
"""A backtracking expression would take thousands of times what a look at each character takes."""


def took(decide: Callable[[], object]) -> float:
    """Return the processor's seconds for a decision."""
    begun = time.process_time()
    decide()
    return time.process_time() - begun


def look_at_each_character() -> list[str]:
    return [letter.lower() for letter in "x" * LARGE]


def is_quick(decide: Callable[[], object]) -> bool:
    """Whether a decision takes no longer than some looks, measured beside it, in any attempt."""
    looks = (MOST_TIMES * took(look_at_each_character) for _ in range(ATTEMPTS))
    return any(took(decide) < limit for limit in looks)


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_megabyte_is_decided_about_as_soon_as_it_is_read(kind):
    check = next(check for check, _, _ in EXAMPLES if check.kind == kind)
    fulfils(ENGLISH, check)
    parts = {"language": ["a@"], "change_case": ["A", "a@", "'S "]}.get(kind.split(":")[0], HOSTILE)
    for part in parts:
        answer = f"x{part * (LARGE // len(part))}y"
        assert is_quick(lambda answer=answer: fulfils(answer, check)), part


@pytest.mark.parametrize("size", [LARGE, LARGE // 5])
def test_a_loose_decision_takes_no_longer(size):
    check = demand("length_constraints:number_sentences", num_sentences=LARGE, relation="at least")
    answer = "mr. *\n" * (size // 6)
    assert is_quick(lambda: fulfils_loosely(answer, check))
    assert not fulfils_loosely(answer[:600], check)


def test_without_langdetect_the_message_names_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "langdetect", None)
    check = demand("language:response_language", language="fr")
    with pytest.raises(ConfigError, match="pip install 'langdetect>="):
        require_deciders([check])
    with pytest.raises(ConfigError, match="pip install 'langdetect>="):
        fulfils("Oui.", check)
    require_deciders([demand("punctuation:no_comma")])


def asked(*checks: Check) -> Prompt:
    return Prompt(
        prompt_id="p",
        task="general",
        split="held-out",
        messages=(Message(role="user", content="Say it."),),
        reference=None,
        checks=checks,
        source="test",
    )


@pytest.mark.parametrize(
    ("answer", "rating", "strict", "loose"),
    [
        ("no commas here", 1, (1, 1), (1, 1)),
        ("Sure, look:\nno commas here", 0, (0, 0.5), (1, 1)),
        ("well, three words", 0, (0, 0.5), (0, 0.5)),
        ("a, b", -1, (0, 0), (0, 0)),
    ],
)
def test_the_verifier_tells_ifevals_four_accuracies(answer, rating, strict, loose):
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
    (rated,) = VerifierCritic(task_aspects={}).read(prompt, verdict).value
    assert rated.rating == rating
