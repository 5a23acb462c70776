"""Sentence match: exact in the tiny world, refused in others."""

from dataclasses import replace

import pytest
import rows

from lpfloop.critics.verify import Verifier, VerifierCritic

ABSTRACT = "Mia Berg was born in 1950. She painted birds.  She lived in Oslo."
PROMPT = replace(rows.PROMPT, task="facts", reference=ABSTRACT, checks=(), source="tiny")
ELSEWHERE = replace(PROMPT, source="people.jsonl")


@pytest.fixture(scope="module")
def verifier():
    with Verifier(sentence_match=True) as shared:
        yield shared


def test_sentences_of_the_tiny_world(verifier, subtests):
    for answer, metrics, rating, reason in [
        ("Sure! Mia Berg was born in 1950. She painted birds.", (1, 2, 0), 1, "supported"),
        ("Answer: mia berg was  born in 1950!", (1, 1, 0), 1, "supported"),
        ("She painted birds. She won a prize.", (0.5, 1, 1), 0, "partly_supported"),
        ("She painted cats. She won. She sang well.", (0, 0, 2), -1, "unsupported"),
        ("Sure! Gladly.", (0, 0, 0), -1, "no_claims"),
    ]:
        with subtests.test(answer=answer):
            (verdict,) = verifier.verify([(PROMPT, answer)])
            assert tuple(value for _, value in verdict.metrics) == metrics
            assert [name for name, _ in verdict.metrics] == [
                *("sentence_match", "sentences_right", "sentences_wrong")
            ]
            assert (verdict.rating, verdict.reason) == (rating, reason)


def test_the_critic_rates_facts(verifier):
    critic = VerifierCritic(Verifier(sentence_match=True), {"facts": "Factuality"})
    (verdict,) = verifier.verify([(PROMPT, "She painted birds. She died young.")])
    reading = critic.read(PROMPT, verdict)
    assert [(a.name, a.rating) for a in reading.value] == [("Factuality", 0)]


def test_facts_without_sentence_matching():
    for prompt in [PROMPT, ELSEWHERE]:
        with Verifier(sentence_match=prompt is ELSEWHERE) as verifier:
            (verdict,) = verifier.verify([(prompt, "Mia Berg was born in 1950.")])
            assert (verdict.metrics, verdict.rating, verdict.reason) == ((), None, "no_judge")
            assert not verifier.can_verify(prompt)
        reading = VerifierCritic(Verifier(), {"facts": "Factuality"}).read(prompt, verdict)
        assert (reading.status, [a.rating for a in reading.value]) == ("no_judge", [None])
