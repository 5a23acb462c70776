"""Pairs are compared by annotators: each by one, some by a coin, none by a guess."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judges import judged_config
from turns import rows, turn

from examples import CANDIDATE
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.evaluation.judgment_formats import PEOPLE
from lpfloop.loop.evaluation.judgment_sources import judgments_of
from lpfloop.loop.evaluation.judgments import collect
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.stop import Stopped
from lpfloop.loop.stages.compare import annotate, compare
from lpfloop.loop.stages.matches import drawn_pairs
from lpfloop.loop.stages.prefer import prefer
from lpfloop.loop.stages.sample import SAMPLE, drawn, draws, sample
from lpfloop.stores.records import SCORED, Candidate, Preference


def job(folder: Path, *overrides: str, script: str = "greater", name: str = "a") -> Job:
    return Job(config=judged_config(folder, script, *overrides), lake=folder, name=name)


def annotated(it: Iteration, n: int = 2) -> tuple[dict[str, Candidate], list[Preference]]:
    drafts = sample(it, it.prompts(), n=n)
    found = rows(it, annotate(it, drafts))
    return {c.candidate_id: c for c in rows(it, drafts)}, found


def questions(asked: list) -> list:
    return [request for request, _ in asked if request.request_id.startswith("ask-")]


# p_ann


def test_one_pair_a_prompt_is_compared_by_one_annotator_of_the_pool(tmp_path):
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


def test_a_coin_takes_half_of_the_questions_away_at_a_quarter_of_flips(tmp_path, asked):
    with turn(job(tmp_path, "prompts.per_iteration=400", "prompts.chunk=100")) as it:
        _, found = annotated(it)
    decided = [row for row in found if row.preferred != "tie"]
    flipped = [row for row in decided if row.flipped]
    assert len(flipped) / len(decided) == pytest.approx(0.5, abs=0.07)
    assert all(row.text == "" for row in flipped)
    assert 0.35 < sum(row.preferred == "first" for row in flipped) / len(flipped) < 0.65
    assert 0 < len(questions(asked)) < len(decided) - len(flipped)


def test_evaluation_and_a_single_annotator_have_no_noise(tmp_path, asked):
    with turn(job(tmp_path, "annotation.single=many")) as it:
        _, found = annotated(it)
    assert {row.annotator for row in found} == {"many"}
    assert not any(row.flipped for row in found)
    drawn = {s.temperature for r, s in asked if r.request_id.startswith("ask-")}
    assert drawn == {0.0}


def test_up_to_a_batch_of_pairs_stands_in_one_prompt(tmp_path, asked):
    with turn(job(tmp_path, "annotation.flip_probability=0")) as it:
        annotated(it)
    sizes = Counter(r.messages[-1].content.count("<pair ") for r in questions(asked))
    assert set(sizes) <= {*range(1, 21)}
    assert max(sizes) > 4
    assert sizes[1]
    assert sizes[4]


def test_an_input_is_shown_apart_from_its_instruction(tmp_path, asked):
    rows_given = [
        {"instruction": f"Say what this is, {n}.", "input": f"Crayon {n}." if n % 2 else ""}
        for n in range(60)
    ]
    own = tmp_path / "own.jsonl"
    own.write_text("".join(json.dumps(row) + "\n" for row in rows_given))
    settings = (f"prompts.source={own}", "annotation.flip_probability=0", "critic.kind=verifier")
    with turn(job(tmp_path, "prompts.input=headed", *settings)) as it:
        annotated(it)
    shown = [request.messages[-1].content for request in questions(asked)]
    assert sum(text.count("<input>Crayon ") for text in shown) > 10
    assert not any("### Input:" in text for text in shown)
    for text in shown:
        assert text.count("<input>") in (0, text.count("<pair "))


def test_published_prompts_are_shown_only_where_nothing_guards(tmp_path, asked):
    original = ("annotation.pool=alpacafarm-original", "annotation.flip_probability=0")
    roles = ("annotation.medium.model=tiny", "annotation.medium.engine.kind=scripted")
    script = "annotation.medium.engine.script=judges:pattern_following"
    settings = (*original, *roles, script)
    guarded = job(tmp_path, *settings, "guard=true", script="pattern_following")
    told = r"strong_1 is asked by a published prompt.*guard=false"
    with pytest.raises(ConfigError, match=told), turn(guarded):
        pass
    bare = job(tmp_path, *settings, "guard=false", script="pattern_following")
    with turn(bare) as it:
        texts, found = annotated(it)
    assert len({row.annotator for row in found}) == 13
    assert {row.status for row in found} == {SCORED}
    asked_about = [r for r in found if texts[r.first_id].text != texts[r.second_id].text]
    preferred = {(row.order, row.preferred) for row in asked_about}
    assert preferred == {("as_given", "first"), ("swapped", "second")}


def test_a_run_tells_what_a_verdict_of_each_annotator_cost(tmp_path):
    paid = "prices.models={tiny: {prompt: 1000, completion: 2000}}"
    with turn(job(tmp_path, paid, "annotation.flip_probability=0")) as it:
        _, found = annotated(it)
        spent = it.run.store.journal.spent().money
        sampled = sum(s.totals.get("money", 0.0) for s in it.run.store.journal.stages()[:1])
    judges = collect(judgments_of(["a"], tmp_path, PEOPLE)).judges
    prices = {judge.name: judge.price for judge in judges}
    told = sum((prices[row.annotator] or 0.0) for row in found if row.text)
    assert 0 < prices["list"] < prices["many"]
    assert told == pytest.approx(spent - sampled)


def test_keyed_on_the_instruction_all_pairs_of_a_prompt_have_one_annotator_and_one_coin(tmp_path):
    kept = []
    for number in (1, 2):
        wanted = job(tmp_path, "annotation.keyed_on=instruction", name=f"run-{number}")
        with turn(wanted, number=number) as it:
            _, found = annotated(it)
        kept.append({r.prompt_id: (r.annotator, r.flipped) for r in found if r.preferred != "tie"})
    shared = kept[0].keys() & kept[1].keys()
    assert len(shared) > 30
    assert all(kept[0][prompt] == kept[1][prompt] for prompt in shared)


def test_both_orders_are_asked_and_a_taste_for_the_first_place_is_a_tie(tmp_path):
    no_noise = ("annotation.order=both", "annotation.flip_probability=0")
    with turn(job(tmp_path, *no_noise, script="foremost")) as it:
        _, found = annotated(it)
    assert {row.preferred for row in found} == {"tie"}
    with turn(job(tmp_path, *no_noise, name="b")) as it:
        _, steady = annotated(it)
    read = [row for row in steady if row.order == "both"]
    assert len(read) > 40
    assert {row.preferred for row in read} == {"first", "second"}


# what cannot be read


def test_what_is_not_read_is_asked_again_under_another_seed_without_what_was(tmp_path, asked):
    settings = ("annotation.attempts=6", "annotation.flip_probability=0")
    with turn(job(tmp_path, *settings, script="unsure")) as it:
        texts, found = annotated(it)
        retries = sum(stage.totals.get("retries", 0) for stage in it.run.store.journal.stages())
    posed = questions(asked)
    assert retries > 0
    assert len({request.seed for request in posed}) == len(posed)
    assert sum(row.status != SCORED for row in found) <= 4
    read = [row for row in found if row.text and row.status == SCORED]
    for row in read:
        first, second = texts[row.first_id].text, texts[row.second_id].text
        assert row.preferred == ("first" if first > second else "second")


def test_a_verdict_that_is_never_read_is_no_number_and_is_counted(tmp_path):
    with turn(job(tmp_path, script="silent")) as it:
        drafts = sample(it, it.prompts(), n=2)
        preferences = annotate(it, drafts)
        found = rows(it, preferences)
        unread = [row for row in found if row.status != SCORED]
        assert len(unread) > 15
        assert all(row.preferred is None and row.text and not row.flipped for row in unread)
        stages = it.run.store.journal.stages()
        assert sum(stage.totals.get("unscored", 0) for stage in stages) == len(unread)
        pairs = prefer(it, drafts, preferences)
        ids = {pair.prompt_id for pair in rows(it, pairs)}
        assert not ids & {row.prompt_id for row in unread}


# p_eval


def test_an_answer_is_compared_as_the_second_with_what_the_reference_answered(tmp_path):
    with turn(job(tmp_path, "assessment.reference=tiny")) as it:
        outputs, answers = _references(it), sample(it, it.prompts(), n=1)
        found = rows(it, compare(it, answers, outputs))
        texts = {c.candidate_id: c for c in (*rows(it, outputs), *rows(it, answers))}
    assert len(found) == 60
    assert not any(row.flipped for row in found)
    assert all(texts[row.first_id].kind == "greedy" for row in found)
    assert all(texts[row.second_id].kind == "sample" for row in found)
    assert sum(row.preferred == "second" for row in found) > 10


@pytest.mark.parametrize("order", ["random", "both"])
def test_two_policies_meet_one_annotator_and_one_order_on_each_instruction(tmp_path, order):
    met = []
    for name, policy in (("a", "policy"), ("b", "wordy_policy")):
        settings = (
            "assessment.reference=tiny",
            f"annotation.order={order}",
            f"policy.engine.script=scripts:{policy}",
        )
        with turn(job(tmp_path, *settings, name=name)) as it:
            outputs, answers = _references(it), sample(it, it.prompts(), n=1)
            found = rows(it, compare(it, answers, outputs))
            back = rows(it, compare(it, outputs, answers))
        read = [row for row in found if row.text]
        assert len({row.annotator for row in read}) == 3
        assert len({row.order for row in read}) == (2 if order == "random" else 1)
        met.append({row.prompt_id: (row.annotator, row.order) for row in read})
        # Whose answers are the reference changes neither.
        turned = {row.prompt_id: (row.annotator, row.order) for row in back if row.text}
        assert turned == met[-1]
        met.append({row.prompt_id: row.second_id for row in read})
    shared = met[0].keys() & met[2].keys()
    assert len(shared) > 30
    assert all(met[0][prompt] == met[2][prompt] for prompt in shared)
    assert any(met[1][prompt] != met[3][prompt] for prompt in shared)


def _references(it: Iteration):
    sampling = it.run.config.policy.sampling
    greedy = replace(it, number=0)
    prompts = it.prompts()
    work = replace(
        it.work(SAMPLE, {"reference": True}),
        upstream=(prompts.identity,),
        reads=prompts.each_key,
    )

    def wanted(chunk, identity):
        return [d for p in prompts.chunks[chunk] for d in draws(it, identity, p, count=1)]

    return drawn(greedy, "reference", "greedy", sampling, work, wanted)


# resuming, and configuration


def test_a_stop_loses_nothing_that_was_committed_and_changes_nothing(tmp_path, asked):
    with turn(job(tmp_path)) as it:
        _, straight = annotated(it)
    whole = len(questions(asked))
    asked.clear()
    with pytest.raises(Stopped), turn(job(tmp_path, name="b"), stop_after=6) as it:
        annotated(it)
    before = {request.request_id for request in questions(asked)}
    assert 0 < len(before) < whole
    with turn(job(tmp_path, name="b")) as it:
        _, resumed = annotated(it)
    assert resumed == straight
    assert len(questions(asked)) == whole


def test_a_pool_that_needs_a_model_which_is_not_set_is_refused_before_anything_is_written(tmp_path):
    nobody = ("annotation.weak.model=null", "annotation.weak.engine.kind=auto")
    wanted = job(tmp_path, *nobody)
    with pytest.raises(ConfigError, match=r"--set annotation\.weak\.model=FOLDER"), turn(wanted):
        pass
    assert not (tmp_path / "runs").exists()


def test_an_annotator_that_the_pool_has_not_is_refused(tmp_path):
    wanted = job(tmp_path, "annotation.single=nobody")
    with pytest.raises(ConfigError, match="no annotator 'nobody'"), turn(wanted):
        pass


def test_a_run_that_compares_nothing_needs_no_annotators(tmp_path):
    with turn(job(tmp_path, "recipe.name=critique-model", "annotation.pool=nowhere.yaml")) as it:
        assert it.run.panels.roles == ()


# which two are compared


def _candidates(texts: list[str], finish: str = "stop") -> list[Candidate]:
    return [
        replace(CANDIDATE, candidate_id=f"cand-{n}", text=text, finish_reason=finish)
        for n, text in enumerate(texts)
    ]


@given(texts=st.lists(st.sampled_from(["a", "b", "b ", "c", "", " "]), max_size=6))
def test_two_usable_candidates_are_drawn_that_differ_if_any_do(texts):
    drafts = _candidates(texts)
    pairs = drawn_pairs(drafts, 0)
    usable = [c for c in drafts if c.text.strip()]
    assert len(pairs) == (len(usable) > 1)
    for first, second in pairs:
        assert first.candidate_id < second.candidate_id
        different = len({c.text.strip() for c in usable}) > 1
        assert (first.text.strip() != second.text.strip()) == different


def test_of_many_candidates_every_pair_is_as_likely():
    drafts = _candidates(["a", "b", "c", "d"])
    drawn = Counter((f.text, s.text) for seed in range(600) for f, s in drawn_pairs(drafts, seed))
    assert len(drawn) == 6
    assert min(drawn.values()) > 60


def test_truncated_answers_are_not_compared_in_training():
    assert drawn_pairs(_candidates(["a", "b"], "length"), 0) == []


# a real model


@pytest.mark.model
def test_a_real_model_annotates_by_one_token(tmp_path):
    pool = tmp_path / "real.yaml"
    pool.write_text(
        "annotators:\n"
        "- {name: biased, model: strong, template: tiny, form: token, max_tokens: 1,"
        ' logit_bias: [["1", 100]]}\n'
    )
    real = (
        f"annotation.pool={pool}",
        "annotation.strong.engine={kind: transformers, script: null}",
        "annotation.flip_probability=0",
        "prompts.per_iteration=6",
    )
    with turn(job(tmp_path, *real)) as it:
        _, found = annotated(it)
    read = [row for row in found if row.preferred != "tie"]
    assert read
    for row in read:
        shown_first = "first" if row.order == "as_given" else "second"
        assert (row.status, row.text, row.preferred) == (SCORED, "1", shown_first)
