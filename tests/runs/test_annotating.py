"""Annotators compare pairs: one pair each, some by a coin; unread replies have no number."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judges import judged_config
from rows import CANDIDATE
from world import handle_rows, turn

from lpfloop.loop.daemon.job import Job
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.stages.compare import annotate, drawn_pairs
from lpfloop.loop.stages.prefer import prefer
from lpfloop.loop.stages.sample import sample
from lpfloop.stores.records import SCORED, Candidate, Preference


def job(folder: Path, *overrides: str, script: str = "greater", name: str = "a") -> Job:
    return Job(config=judged_config(folder, script, *overrides), lake=folder, name=name)


def annotated(it: Iteration, n: int = 2) -> tuple[dict[str, Candidate], list[Preference]]:
    drafts = sample(it, it.prompts(), n=n)
    found = handle_rows(it, annotate(it, drafts))
    return {c.candidate_id: c for c in handle_rows(it, drafts)}, found


def questions(asked: list) -> list:
    return [request for request, _ in asked if request.request_id.startswith("ask-")]


# p_ann


def test_one_annotator_a_pair(tmp_path):
    with turn(job(tmp_path)) as it:
        texts, found = annotated(it)
    assert len(found) == 60 == len({row.prompt_id for row in found})
    assert {row.annotator for row in found} == {"one", "many", "list"}
    assert {row.order for row in found if not row.flipped} == {"as_given", "swapped"}
    for row in found:
        first, second = texts[row.first_id].text, texts[row.second_id].text
        assert row.status == SCORED
        if first == second:
            assert (row.preferred, row.flipped, row.text) == ("tie", False, "")
        elif not row.flipped:
            assert row.preferred == ("first" if first > second else "second")
            assert row.text


def test_coin_at_a_quarter_of_flips(tmp_path, asked):
    with turn(job(tmp_path, "prompts.per_iteration=300", "prompts.chunk=100")) as it:
        _, found = annotated(it)
    decided = [row for row in found if row.preferred != "tie"]
    flipped = [row for row in decided if row.flipped]
    assert len(flipped) / len(decided) == pytest.approx(0.5, abs=0.1)
    assert all(row.text == "" for row in flipped)
    assert 0.35 < sum(row.preferred == "first" for row in flipped) / len(flipped) < 0.65
    assert 0 < len(questions(asked)) < len(decided) - len(flipped)


def test_both_orders_queried(tmp_path):
    no_noise = ("annotation.order=both", "annotation.flip_probability=0")
    with turn(job(tmp_path, *no_noise, script="foremost")) as it:
        _, found = annotated(it)
    assert {row.preferred for row in found} == {"tie"}
    with turn(job(tmp_path, *no_noise, name="b")) as it:
        _, steady = annotated(it)
    read = [row for row in steady if row.order == "both"]
    assert len(read) > 40
    assert {row.preferred for row in read} == {"first", "second"}


# unreadable replies


def test_unread_share_is_null(tmp_path):
    with turn(job(tmp_path, script="silent")) as it:
        drafts = sample(it, it.prompts(), n=2)
        preferences = annotate(it, drafts)
        found = handle_rows(it, preferences)
        unread = [row for row in found if row.status != SCORED]
        assert len(unread) > 15
        assert all(row.preferred is None and row.text and not row.flipped for row in unread)
        stages = it.run.store.journal.stages()
        assert sum(stage.totals.get("unscored", 0) for stage in stages) == len(unread)
        pairs = prefer(it, drafts, preferences)
        ids = {pair.prompt_id for pair in handle_rows(it, pairs)}
        assert not ids & {row.prompt_id for row in unread}


def test_asked_again_as_if_more_replies_were_allowed(tmp_path):
    """Replies that were readable stay, even if another one for the prompt was not."""
    once = job(tmp_path, "annotation.attempts=1", script="unsure")
    with turn(once) as it:
        _, first = annotated(it)
    with turn(replace(once, retry_unscored=True)) as it:
        _, again = annotated(it)
    with turn(job(tmp_path, script="unsure", name="b")) as it:
        _, straight = annotated(it)
    read = [row for row in first if row.status == SCORED]
    assert 0 < len(read) < sum(row.status == SCORED for row in again)
    assert again == straight
    assert all(row in again for row in read)


# the compared pairs


def _candidates(texts: list[str], finish: str = "stop") -> list[Candidate]:
    return [
        replace(CANDIDATE, candidate_id=f"cand-{n}", text=text, finish_reason=finish)
        for n, text in enumerate(texts)
    ]


@given(texts=st.lists(st.sampled_from(["a", "b", "b ", "c", "", " "]), max_size=6))
def test_drawn_pairs_differ(texts):
    drafts = _candidates(texts)
    pairs = drawn_pairs(drafts, 0)
    usable = [c for c in drafts if c.text.strip()]
    assert len(pairs) == (len(usable) > 1)
    for first, second in pairs:
        assert first.candidate_id < second.candidate_id
        different = len({c.text.strip() for c in usable}) > 1
        assert (first.text.strip() != second.text.strip()) == different
