"""An export in UltraFeedback's format imports to the same rows."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rows import CANDIDATE, CRITIQUE, PROMPT

from lpfloop.loop.data.file_row import as_row
from lpfloop.loop.data.rating_scale import SCALES
from lpfloop.loop.lake.exports.feedback_rows import Group, Judged, ultrafeedback
from lpfloop.loop.lake.imports.import_formats import FORMATS
from lpfloop.loop.lake.imports.imported_rows import Maker
from lpfloop.stores.records import (
    AspectRating,
    Candidate,
    Critique,
    Message,
    Prompt,
)
from lpfloop.stores.schemas import plain

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
prompts = st.lists(words.filter(str.strip), min_size=1, max_size=3)
aspects = st.dictionaries(
    words.filter(bool), st.tuples(st.sampled_from([-1, 0, 1, None]), words), max_size=3
)


@given(prompts, words, words, aspects)
def test_ratings_come_back(turns, text, said, rated):
    roles = ("user", "assistant", "user")
    messages = tuple(
        Message(role=role, content=turn)
        for role, turn in zip(roles[-len(turns) :], turns, strict=True)
    )
    prompt = replace(PROMPT, messages=messages)
    candidate = replace(CANDIDATE, text=text)
    ratings = tuple(AspectRating(name=n, rating=r, comment=c) for n, (r, c) in rated.items())
    critique = replace(CRITIQUE, aspects=ratings, text=said)
    row = _through_json(_grouped(prompt, candidate, critique))
    back = list(FORMATS["ultrafeedback"].read(as_row(row), _maker()))
    assert next(r.messages for r in back if isinstance(r, Prompt)) == messages
    assert next(r.text for r in back if isinstance(r, Candidate)) == text
    found = next((r for r in back if isinstance(r, Critique)), None)
    if found is not None:
        assert found.aspects == ratings
        again = ultrafeedback(_grouped(prompt, candidate, found))
        assert _through_json(again)["completions"][0] == row["completions"][0]
    else:
        assert (ratings, said) == ((), "")


def _grouped(prompt, candidate, critique):
    judged = Judged(plain(candidate), [plain(critique)], [])
    return Group(plain(prompt), [judged])


def _through_json(group):
    row = ultrafeedback(group) if isinstance(group, Group) else group
    return json.loads(json.dumps(row))


def _maker():
    return Maker(source="back", scale=SCALES["1-5"], task=None)
