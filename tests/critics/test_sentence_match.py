"""Sentence match: exact in the tiny world, refused in any other."""

from dataclasses import replace

import pytest

from lpfloop.critics.verify import Verifier, VerifierCritic
from lpfloop.stores.records import Check, Message, Prompt

ABSTRACT = "Mia Berg was born in 1950. She painted birds.  She lived in Oslo."
PROMPT = Prompt(
    prompt_id="p",
    task="facts",
    split="held-out",
    messages=(Message(role="user", content="Tell me about Mia Berg."),),
    reference=ABSTRACT,
    checks=(),
    source="tiny",
)
ELSEWHERE = replace(PROMPT, source="people.jsonl")


@pytest.fixture(scope="module")
def verifier():
    with Verifier(sentence_match=True) as shared:
        yield shared


@pytest.mark.parametrize(
    ("answer", "metrics", "rating", "reason"),
    [
        ("Sure! Mia Berg was born in 1950. She painted birds.", (1, 2, 0), 1, "supported"),
        ("Answer: mia berg was  born in 1950!", (1, 1, 0), 1, "supported"),
        ("She painted birds. She won a prize.", (0.5, 1, 1), 0, "partly_supported"),
        ("She painted birds. She painted birds. She flew.", (1, 1, 0), 1, "supported"),
        ("She painted cats. She won. She sang well.", (0, 0, 2), -1, "unsupported"),
        ("Born 1951.", (0, 0, 1), -1, "unsupported"),
        ("Sure! Gladly.", (0, 0, 0), -1, "no_claims"),
        ("", (0, 0, 0), -1, "no_claims"),
    ],
)
def test_sentences_of_the_tiny_world_are_those_of_the_abstract(
    verifier, answer, metrics, rating, reason
):
    (verdict,) = verifier.verify([(PROMPT, answer)])
    assert tuple(value for _, value in verdict.metrics) == metrics
    assert [name for name, _ in verdict.metrics] == [
        *("sentence_match", "sentences_right", "sentences_wrong")
    ]
    assert (verdict.rating, verdict.reason) == (rating, reason)


def test_as_a_critic_it_rates_the_facts_of_the_tiny_world(verifier):
    critic = VerifierCritic(task_aspects={"facts": "Factuality"}, sentence_match=True)
    (verdict,) = verifier.verify([(PROMPT, "She painted birds. She died young.")])
    reading = critic.read(PROMPT, verdict)
    assert [(a.name, a.rating) for a in reading.value] == [("Factuality", 0)]


@pytest.mark.parametrize("prompt", [PROMPT, ELSEWHERE], ids=["not asked to", "another source"])
def test_facts_are_left_without_a_verdict_where_sentences_are_not_matched(prompt):
    with Verifier(sentence_match=prompt is ELSEWHERE) as verifier:
        (verdict,) = verifier.verify([(prompt, "Mia Berg was born in 1950.")])
        assert (verdict.metrics, verdict.rating, verdict.reason) == ((), None, "no_judge")
        assert not verifier.can_verify(prompt)
    reading = VerifierCritic(task_aspects={"facts": "Factuality"}).read(prompt, verdict)
    assert (reading.status, [a.rating for a in reading.value]) == ("no_judge", [None])


def test_checks_of_such_a_prompt_are_measured_and_do_not_rate_its_facts(verifier):
    checked = replace(ELSEWHERE, checks=(Check(kind="contains", argument="1950"),))
    (verdict,) = verifier.verify([(checked, "Mia Berg was born in 1950.")])
    assert verdict.metrics == (("general_fulfilled", 1.0),)
    assert (verdict.rating, verdict.reason) == (None, "no_judge")


def test_what_is_verified_by_sentences_has_keys_of_its_own(verifier):
    with Verifier() as bare:
        assert bare.params("held-out") != verifier.params("held-out")
    digests = [
        VerifierCritic(task_aspects={}, sentence_match=matches).digest for matches in (True, False)
    ]
    assert digests[0] != digests[1]
