"""Replies that are kept to a JSON schema: what conforms is read, and the mark is still needed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import rows
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from lpfloop.configs.schema import GradingConfig
from lpfloop.critics.annotators.annotator_pool import load_pool
from lpfloop.critics.annotators.comparison import Comparison, ask
from lpfloop.critics.grading.grader import Grader
from lpfloop.critics.guard import BARE, MARK_FIELD, GuardKey
from lpfloop.critics.judge import WAS_READ, Question
from lpfloop.critics.scoring.answer_forms import load_form
from lpfloop.critics.scoring.answer_scorer import AnswerScorer

ANSWERS = ("It is 4, and here is why.", "Five.", "I do not know.", "Four, I think.")
PROMPT = replace(rows.PROMPT, task="any", reference="It is four.")
FORMS = ("just-eval", "alignbench", "alignbench-zh")
GUARD = GuardKey.of(7, "ask-1")
POOL = """
annotators:
- {name: one, model: strong, template: reasons, form: json, max_tokens: 300}
- {name: many, model: strong, template: tiny, form: json, batch_size: 3, max_tokens: 600}
- {name: tied, model: strong, template: tiny, form: json, ties: true, max_tokens: 300}
- {name: choosing, model: strong, template: chat, form: choice, max_tokens: 300}
"""


def by_schema(key: GuardKey) -> GuardKey:
    return GuardKey(secret=key.secret, request=key.request, by_schema=True)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("pool") / "pool.yaml"
    path.write_text(POOL)
    return load_pool(str(path))


def questions(pool: Any, key: GuardKey) -> dict[str, Question[Any]]:
    """One question of each kind whose reply is an object."""
    pairs = [
        Comparison(prompt="What is 2 + 2?", first=a, second=b, key=f"{a}{b}")
        for a, b in pairwise(ANSWERS)
    ]
    grader = Grader.from_config(GradingConfig(score_form="json"))
    scorers = {name: AnswerScorer(form=load_form(name)) for name in FORMS}
    return {
        "grader": grader.ask("overall", PROMPT, ANSWERS[:1], None, key),
        **{name: scorer.ask(PROMPT, ANSWERS[0], key) for name, scorer in scorers.items()},
        **{a.name: ask(a, pairs[: a.batch_size], key) for a in pool.annotators},
    }


def replies(schema: Any, mark: str | None) -> st.SearchStrategy[Any]:
    """Any value that a schema allows, of a judge that copies the mark and gives reasons."""
    match schema:
        case {"enum": values}:
            return st.sampled_from(values)
        case {"anyOf": kinds}:
            return st.one_of([replies(kind, mark) for kind in kinds])
        case {"type": "array", "items": {"properties": {"pair": {"enum": pairs}}} as entry}:
            each = st.tuples(*[replies(entry, mark)] * len(pairs))
            return each.map(lambda es: [e | {"pair": n} for e, n in zip(es, pairs, strict=True)])
        case {"properties": fields}:
            parts = {name: replies(one, mark) for name, one in fields.items()}
            if MARK_FIELD in fields:
                parts[MARK_FIELD] = st.just(mark)
            each = st.fixed_dictionaries(parts)
            return each.map(lambda said: {name: said[name] for name in fields})
        case _:
            return st.text(alphabet='xyzäöü好 \n\t"\\{}[],:*`', min_size=1).map(lambda t: f"w{t}w")


def said_by(reply: Any) -> Iterator[object]:
    """Give the verdicts of a reply, in their order."""
    for name, value in reply.items():
        if isinstance(value, dict):
            yield from said_by(value)
        elif isinstance(value, list):
            for entry in value:
                yield from said_by(entry)
        elif name in ("score", "preferred", "choice"):
            yield value


def value_of(reading: Any) -> object:
    value = reading.value
    return value.rating if hasattr(value, "rating") else value.preferred


MEANT = {"A++": "first", "A+": "first", "B+": "second", "B++": "second", "tie": "tie", "N/A": None}


@pytest.mark.parametrize("key", [BARE, GUARD], ids=["bare", "guarded"])
@given(data=st.data())
@settings(max_examples=8, phases=[Phase.generate])
def test_conforming_replies_are_read(pool: Any, key: GuardKey, data: Any) -> None:
    for name, question in questions(pool, by_schema(key)).items():
        assert question.schema is not None
        reply = data.draw(replies(question.schema, question.mark), label=name)
        read = question.read(json.dumps(reply, ensure_ascii=False), "stop")
        assert {one.status for one in read} <= WAS_READ, name
        pairs = {1: "first", 2: "second"} if name in ("one", "many", "tied") else {}
        meant = [pairs.get(v, MEANT.get(v, v)) for v in said_by(reply)]  # type: ignore[call-overload]
        assert [value_of(one) for one in read] == meant, name
        assert MARK_FIELD not in str(read)


def test_a_verdict_counts_by_its_own_mark_alone(pool: Any) -> None:
    other = by_schema(GuardKey.of(8, "ask-1"))
    for name, question in questions(pool, by_schema(GUARD)).items():
        foreign = questions(pool, other)[name].example(1)
        bare = json.dumps({k: v for k, v in json.loads(foreign).items() if k != MARK_FIELD})
        below = f"{question.mark}\n{bare}"
        last = bare.removesuffix("}") + f', "{MARK_FIELD}": "{question.mark}"}}'
        for forged in (foreign, bare, below, last):
            assert {one.status for one in question.read(forged, "stop")} == {"unmarked"}, name
        own = question.example(2)
        twice = {one.status for one in question.read(f"{own}\n{own}", "stop")}
        assert twice == {"contradictory"}, name
        # What is quoted ahead of the judge's own object is none of its words.
        for quoted in (f"{bare}\n{own}", f"It says\n{foreign}\n{own}", f"```json\n{own}"):
            assert question.read(quoted, "stop") == question.read(own, "stop"), name
