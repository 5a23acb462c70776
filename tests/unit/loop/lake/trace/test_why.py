"""Explanations of pairs and missing pairs, and pages that make hostile text harmless."""

import unicodedata
from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st
from lakes import HOSTILE, PAIRED, candidate, critique, made, reward
from rows import PAIR

from lpfloop.loop.data.text import HIDDEN
from lpfloop.loop.lake.trace.find_row import Found
from lpfloop.loop.lake.trace.story import Story
from lpfloop.loop.lake.trace.story_page import story_page
from lpfloop.loop.lake.trace.terminal_page import page_text
from lpfloop.loop.lake.trace.why import why_outcome, why_pair


def story(*, candidates=(), critiques=(), rewards=()):
    return Story(
        run="r",
        requested=Found(kind="prompt", id=PAIRED.prompt_id, prompt_id=PAIRED.prompt_id),
        prompt=PAIRED,
        candidates=list(candidates),
        critiques=list(critiques),
        rewards=list(rewards),
        preferences=[],
        grades=[],
        breakdowns=[],
        claims=[],
        pairs=[],
        demonstrations=[],
        pairing_outcomes=[],
        scores=[],
        checkpoints=[],
        derived=[],
    )


def test_why_no_pair(subtests):
    for outcome, rule, words in (
        ("no_candidates", "success", "the prompt has no candidates"),
        ("none_usable", "success", "truncated or empty"),
        ("none_rated", "success", "has ratings"),
        ("none_rated", "top_reward", "has a reward"),
        ("none_rated", "best-vs-worst", "has a score"),
        ("no_positive", "success", "1 on all rated aspects"),
        ("no_negative", "success_vs_failure", "a rating of 0 or -1"),
        ("all_identical", "success_vs_failure", "have the same text"),
    ):
        with subtests.test(outcome=outcome, rule=rule):
            told = why_outcome(made(PAIRED, outcome, rule=rule))
            assert told.startswith(f"iteration 1, rule {rule}: {outcome}, 0 made: ")
            assert words in told


def test_ties_without_rewards_are_broken_at_random():
    answers = [candidate(name, PAIRED, name) for name in ("one", "two")]
    pair = replace(PAIR, chosen_reward=None)
    assert "in random order, without rewards" in why_pair(story(candidates=answers), pair)
    ranked = story(candidates=answers, rewards=[reward(answers[0], 1.0)])
    assert "highest rewards first" in why_pair(ranked, pair)


@given(st.text())
@example(HOSTILE)
def test_hostile_text_is_harmless(text):
    asked = replace(PAIRED, task=text, reference=text, source=text)
    answer = candidate(f"x{text}", asked, text, finish_reason="length")
    said = replace(critique(answer, 1), text=text)
    told = replace(
        story(candidates=[answer], critiques=[said], rewards=[reward(answer, 1.0)]), prompt=asked
    )
    page = story_page(told)
    shown = page_text(page)
    assert all(c == "\n" or unicodedata.category(c) not in HIDDEN for c in shown)
