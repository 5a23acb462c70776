"""lpfloop reads every honest verdict: real judges' reasons on real answers, bare and guarded."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import pytest
from forgeries import CRITIC, GRADER, POOL, REVIEWERS

from lpfloop.critics.annotators.comparison import Comparison, ask
from lpfloop.critics.annotators.pair_verdicts import reply_of
from lpfloop.critics.guard import BARE, GuardKey
from lpfloop.critics.judge import Question, user_message
from lpfloop.critics.quality.prompt_review import ASPECTS
from lpfloop.stores.records import Prompt

Rows = Callable[[str], list[dict[str, Any]]]
ONE_PAIR = [a for a in POOL.annotators if a.batch_size == 1 and not a.short]
LETTERS = (("(a)", "1"), ("(b)", "2"), ("Response ", "Output "))


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A question with an honest reply, split before the verdict, and the verdict's value."""

    ask: Callable[[GuardKey], Question[Any]]
    reasons: str
    verdict: str
    value: Callable[[Any], object]
    expected: object

    def read(self, key: GuardKey) -> tuple[str, object]:
        """Return the reading of a reply, with a key or without."""
        question = self.ask(key)
        mark = f"{question.mark}\n" if question.mark else ""
        (reading,) = question.read(f"{self.reasons}{mark}{self.verdict}", "stop")
        return reading.status, self.value(reading.value)


class Rated(NamedTuple):
    """A judge's reply about an answer, and its score from 0 to 1."""

    instruction: str
    answer: str
    reason: str
    score: float


class Preferred(NamedTuple):
    """A judge's reply about two answers, and the number of the better one."""

    instruction: str
    first: str
    second: str
    reason: str
    better: str


def judgements(rows: Rows) -> Iterator[Judgement]:
    """Yield each reason in all suitable forms, single pairs in each annotator's form."""
    for rated in _rated(rows):
        yield from (form(rated) for form in (_critique, _grade, _overall, _review))
    for number, preferred in enumerate(_preferred(rows)):
        for at in range(2):
            yield _comparison(preferred, ONE_PAIR[(number + at) % len(ONE_PAIR)])


def _rated(rows: Rows) -> Iterator[Rated]:
    for row in rows("wildbench_feedback_gemma2b.jsonl"):
        said = row["feedback"]
        reason = f"{said['strengths']}\n{said['weaknesses']}"
        yield Rated("Do as you are told.", row["model_output"], reason, int(row["score"]) / 10)
    for row in rows("justeval_multi_aspect.jsonl"):
        for said in json.loads(row["raw_judgment"]).values():
            if said["score"] == "N/A":
                continue
            score = (int(said["score"]) - 1) / 4
            yield Rated(row["instruction"], row["output"], said["reason"], score)
    for row in rows("justeval_safety_vicuna.jsonl"):
        said = row["safety"]
        score = (int(said["score"]) - 1) / 4
        yield Rated(row["instruction"], row["output"], said["reason"], score)
    for row in rows("prometheus_vicuna_eval.jsonl"):
        asked, rest = row["instruction"].split("###")[2:4]
        for reason, score in zip(row["gpt4_feedback"], row["gpt4_score"], strict=True):
            yield Rated(asked, rest, reason, (int(score) - 1) / 4)


def _preferred(rows: Rows) -> Iterator[Preferred]:
    for row in rows("pandalm.jsonl"):
        if row["pandalm_result"] in (1, 2):
            told = f"{row['instruction']}\n{row['input']}"
            better, reason = str(row["pandalm_result"]), row["pandalm_reason"]
            yield Preferred(told, str(row["response1"]), str(row["response2"]), reason, better)
    pairs = itertools.cycle(rows("pandalm.jsonl"))
    for row, order in itertools.product(rows("llmbar_judge_completions.jsonl"), range(2)):
        said = row[f"order{order + 1}"]
        if said["text"] and said["winner"] and row["strategy"] == "CoT":
            shown = next(pairs)
            texts = (shown["instruction"], str(shown["response1"]), str(shown["response2"]))
            yield Preferred(*texts, said["text"], said["winner"])


def _prompt(rated: Rated) -> Prompt:
    return Prompt(
        prompt_id="p",
        task="facts",
        split="train",
        messages=user_message(rated.instruction),
        reference=None,
        checks=(),
        source="here",
    )


def _critique(rated: Rated) -> Judgement:
    rating = round(2 * rated.score) - 1
    return Judgement(
        ask=lambda key: CRITIC.ask(_prompt(rated), rated.answer, key),
        reasons=f"Task 1: It helps to know facts.\n\nTask 2: {rated.reason}\n\n",
        verdict=f'{{"Factuality": {rating}}}',
        value=lambda aspects: [aspect.rating for aspect in aspects],
        expected=[rating],
    )


def _grade(rated: Rated) -> Judgement:
    rating = 1 + round(4 * rated.score)
    return Judgement(
        ask=lambda key: GRADER.ask(
            "instruction_following", _prompt(rated), [rated.answer], key=key
        ),
        reasons="",
        verdict=f"[Text 1]\nRationale: {rated.reason}\nRating: {rating}",
        value=lambda appraisal: appraisal.rating,
        expected=rating,
    )


def _overall(rated: Rated) -> Judgement:
    rating = 1 + round(9 * rated.score)
    return Judgement(
        ask=lambda key: GRADER.ask("overall", _prompt(rated), [rated.answer], key=key),
        reasons=f"{rated.reason}\n\n",
        verdict=f"Overall score: {rating}",
        value=lambda appraisal: appraisal.rating,
        expected=rating,
    )


def _review(rated: Rated) -> Judgement:
    ratings = [round(2 * rated.score) - 1, 0, 1]
    return Judgement(
        ask=lambda key: REVIEWERS[0].ask(rated.answer, key),
        reasons=f"intention: {rated.reason}\nsemantics: plain\nanswerability: yes\n",
        verdict=json.dumps(dict(zip(ASPECTS, ratings, strict=True))),
        value=lambda review: [aspect.rating for aspect in review.aspects],
        expected=ratings,
    )


def _comparison(preferred: Preferred, annotator: Any) -> Judgement:
    said = preferred.reason
    for old, new in LETTERS:
        said = said.replace(old, new)
    choice = "first" if preferred.better == "1" else "second"
    pair = Comparison(
        prompt=preferred.instruction, first=preferred.first, second=preferred.second, key="k"
    )
    return Judgement(
        ask=lambda key: ask(annotator, [pair], key),
        reasons="" if annotator.form == "json" else f"{said}\n\n",
        verdict=reply_of(annotator.form, [("1", choice, said)], several=False),
        value=lambda verdict: verdict.preferred,
        expected=choice,
    )


@pytest.mark.parametrize(
    ("share", "least"), [(8, 1_500), pytest.param(1, 10_000, marks=pytest.mark.slow)]
)
def test_no_honest_verdict_is_lost(shared_rows, share, least):
    lost, count = [], 0
    for number, judgement in enumerate(islice(judgements(shared_rows), 0, None, share)):
        count += 1
        for key in (BARE, GuardKey.of(7, f"ask-{number}")):
            found = judgement.read(key)
            if found != ("scored", judgement.expected):
                lost.append((found, judgement.expected, judgement.verdict, key))
    assert lost == []
    assert count >= least
