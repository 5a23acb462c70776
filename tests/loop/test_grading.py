"""Candidates are graded in four aspects and as a whole; what cannot be read is no number."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import scripts
from graders import rating_of
from turns import rows, turn

from examples import CANDIDATE
from lpfloop.configs.load import load_config
from lpfloop.configs.schema import ConfigError, GradingConfig
from lpfloop.critics.grading.graded_aspects import FINE_GRAINED
from lpfloop.critics.grading.grader import Grader
from lpfloop.loop.daemon.job import Job
from lpfloop.loop.run.iteration import Iteration
from lpfloop.loop.run.stop import Stopped
from lpfloop.loop.stages.ask_judge import JudgeInquiry
from lpfloop.loop.stages.grade import Grading, grade, grade_overall
from lpfloop.loop.stages.sample import sample
from lpfloop.policies.engines.engine import Completion
from lpfloop.policies.engines.scripted_engine import ScriptedEngine
from lpfloop.stores.records import SCORED, Candidate, Grade

SETTINGS = (
    "policy.engine.kind=scripted",
    "policy.engine.script=scripts:policy",
    "critic.engine.kind=scripted",
    "critic.engine.script=scripts:critic",
    "reward.model=none",
    "grading.model=tiny",
    "grading.engine.kind=scripted",
    "prompts.per_iteration=30",
    "prompts.evaluated=6",
    "prompts.deciding=6",
    "prompts.chunk=12",
    "assessment.reference=null",
    "assessment.oracle=null",
)


def job(folder: Path, *overrides: str, script: str = "by_figure", name: str = "a") -> Job:
    settings = (*SETTINGS, f"grading.engine.script=graders:{script}", *overrides)
    config = load_config("tiny", "ultrafeedback-dpo", settings, {})
    return Job(config=config, lake=folder, name=name)


def graded(it: Iteration, n: int = 4) -> tuple[dict[str, Candidate], list[Grade]]:
    drafts = sample(it, it.prompts(), n=n)
    found = rows(it, grade(it, drafts))
    return {c.candidate_id: c for c in rows(it, drafts)}, found


@pytest.fixture
def asked(monkeypatch) -> list:
    """Every request that a scripted model gets from now on."""
    requests = []
    answer = ScriptedEngine._complete

    def noting(self, request, sampling):
        if request.request_id.startswith("ask-"):
            requests.append((request, sampling))
        return answer(self, request, sampling)

    monkeypatch.setattr(ScriptedEngine, "_complete", noting)
    return requests


# four aspects


def test_all_candidates_of_a_prompt_are_graded_in_one_question_an_aspect(tmp_path, asked):
    with turn(job(tmp_path)) as it:
        texts, found = graded(it)
    assert len(asked) == 30 * 4
    assert {request.messages[-1].content.count("<text ") for request, _ in asked} == {4}
    assert Counter(row.aspect for row in found) == dict.fromkeys(FINE_GRAINED, 120)
    assert len({row.grade_id for row in found}) == len(found)
    for row in found:
        assert (row.status, row.rating) == (SCORED, rating_of(texts[row.candidate_id].text, 5))
        assert row.rationale == "The figure says so."
        assert row.attempts == 1


def test_the_order_is_drawn_anew_for_each_prompt_and_aspect_and_is_stored(tmp_path, asked):
    with turn(job(tmp_path)) as it:
        texts, found = graded(it)
    by_text = {request.request_id: request.messages[-1].content for request, _ in asked}
    orders = Counter[tuple[int, ...]]()
    for prompt in {row.prompt_id for row in found}:
        for aspect in FINE_GRAINED:
            shown = [r for r in found if (r.prompt_id, r.aspect) == (prompt, aspect)]
            orders[tuple(row.order for row in shown)] += 1
            inside = [texts[r.candidate_id].text for r in sorted(shown, key=lambda r: r.order)]
            assert any(_in_order(text, inside) for text in by_text.values())
    assert len(orders) > 18
    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)


def _in_order(question: str, texts: list[str]) -> bool:
    at = 0
    for number, text in enumerate(texts, start=1):
        at = question.find(f'<text number="{number}">{text}</text>', at)
        if at < 0:
            return False
    return True


def test_references_are_shown_where_a_prompt_has_one(tmp_path):
    with turn(job(tmp_path)) as it:
        _, found = graded(it)
        has = {prompt_id for prompt_id, p in it.run.prompts.items() if p.reference}
    assert {r.prompt_id for r in found} - has
    for row in found:
        shown = row.prompt_id in has and row.aspect != "instruction_following"
        assert row.reference_used == shown


def test_an_aspect_that_does_not_apply_is_no_number_and_is_not_asked_about_again(tmp_path, asked):
    with turn(job(tmp_path, script="shy")) as it:
        _, found = graded(it)
        unscored = sum(stage.totals.get("unscored", 0) for stage in it.run.store.journal.stages())
    honest = [row for row in found if row.aspect == "honesty"]
    assert {(row.rating, row.status) for row in honest} == {(None, "not_applicable")}
    assert {row.status for row in found if row.aspect != "honesty"} == {SCORED}
    assert len(asked) == 30 * 4
    assert unscored == 0


# critiques


def test_every_candidate_is_critiqued_by_itself_with_an_overall_score(tmp_path, asked):
    with turn(job(tmp_path)) as it:
        drafts = sample(it, it.prompts(), n=2)
        found = rows(it, grade_overall(it, drafts))
        texts = {c.candidate_id: c.text for c in rows(it, drafts)}
    assert len(asked) == len(found) == 60
    for row in found:
        assert (row.aspect, row.rating) == ("overall", rating_of(texts[row.candidate_id], 10))
        assert (row.rationale, row.order) == ("Mind the figure.", 0)


# what cannot be read


def test_what_is_not_read_is_asked_again_in_another_order_under_another_seed(tmp_path, asked):
    with turn(job(tmp_path, "grading.attempts=6", script="unsure")) as it:
        texts, found = graded(it)
        retries = sum(stage.totals.get("retries", 0) for stage in it.run.store.journal.stages())
    assert retries == len(asked) - 120 > 20
    assert len({request.seed for request, _ in asked}) == len(asked)
    assert {s.temperature for _, s in asked} == {0.0, 0.7}
    again = Counter(row.attempts for row in found)
    assert again[1] > again[2] > 0
    assert sum(row.status != SCORED for row in found) <= 4 * 8
    for row in found:
        if row.status == SCORED:
            assert row.rating == rating_of(texts[row.candidate_id].text, 5)


def test_a_reply_that_is_never_read_leaves_a_reason_and_no_number(tmp_path):
    with turn(job(tmp_path, script="silent")) as it:
        _, found = graded(it)
        totals = [stage.totals for stage in it.run.store.journal.stages()]
    assert {(row.rating, row.status, row.attempts) for row in found} == {(None, "missing", 3)}
    assert all(row.text == "That is hard to say." for row in found)
    assert sum(total.get("unscored", 0) for total in totals) == len(found)


def test_what_was_never_written_is_not_shown(tmp_path, asked):
    with turn(job(tmp_path, "policy.engine.max_model_len=16")) as it:
        texts, found = graded(it, n=2)
        ends = {c.finish_reason for c in texts.values()}
    assert "overlong" in ends
    for row in found:
        if texts[row.candidate_id].finish_reason == "overlong":
            assert (row.status, row.order, row.attempts) == ("overlong", -1, 0)
        else:
            assert row.status == SCORED
    assert len(asked) < 30 * 4


def test_verdicts_find_their_candidates_whatever_the_order_of_rows(tmp_path):
    with turn(job(tmp_path)) as it:
        grading = grading_of(it, "honesty")
        one, two, three = (candidate(it, f"c{n}", f"Number {n}.") for n in (1, 2, 3))
        for candidates in ((one, two, three), (three, one, two)):
            inquiry = asked_about(grading, candidates)
            question = inquiry.request().messages[0].content
            numbers = {c: question.partition(f">{c.text}<")[0][-2:-1] for c in candidates}
            reply = "\n".join(
                f"[Text {n}]\nRationale: Yes.\nRating: {n}" for n in sorted(numbers.values())
            )
            (heard,) = inquiry.heard(_completion(inquiry, reply))
            assert heard.settled
            places = grading.places(candidates, 0)
            ratings = (heard.readings[place].value.rating for place in places)
            said = {c: str(int(rating)) for c, rating in zip(candidates, ratings, strict=True)}
            assert said == numbers
            other = asked_about(grading, (two, one, three))
            assert inquiry.request().request_id == other.request().request_id


def test_a_critic_is_told_what_the_completion_was_told_and_not_what_that_is_called(tmp_path):
    with turn(job(tmp_path)) as it:
        told = replace(candidate(it, "c1", "One."), principle="honesty: Admit gaps.")
        inquiry = asked_about(grading_of(it, "overall"), (told,))
        assert "<note>Admit gaps.</note>" in inquiry.request().messages[0].content


def grading_of(it: Iteration, aspect: str) -> Grading:
    grader = Grader.from_config(GradingConfig(templates="tiny"))
    return Grading(run=it.run, iteration=1, grader=grader, aspect=aspect, candidates=lambda _: [])


def asked_about(grading: Grading, candidates: tuple[Candidate, ...]) -> JudgeInquiry:
    return JudgeInquiry(subject=candidates, pose=grading.pose, most=2)


def candidate(it: Iteration, name: str, text: str) -> Candidate:
    prompt = it.prompts().chunks[0][0].prompt_id
    return replace(CANDIDATE, candidate_id=name, prompt_id=prompt, text=text)


def _completion(inquiry: JudgeInquiry, text: str) -> Completion:
    return Completion(
        request_id=inquiry.request().request_id,
        text=text,
        prompt_tokens=1,
        completion_tokens=1,
        finish_reason="stop",
        logprob=None,
    )


# stops, changes, refusals


def test_a_stop_in_the_middle_loses_nothing_and_repeats_nothing(tmp_path, asked):
    with turn(job(tmp_path)) as it:
        _, straight = graded(it)
    whole = len(asked)
    asked.clear()
    with pytest.raises(Stopped), turn(job(tmp_path, name="b"), stop_after=8) as it:
        graded(it)
    before = len(asked)
    assert 0 < before < whole
    with turn(job(tmp_path, name="b")) as it:
        _, resumed = graded(it)
    assert resumed == straight
    assert len(asked) == whole


def test_a_changed_template_is_another_stage_for_its_aspect_alone(tmp_path):
    def identities(folder: Path, *overrides: str) -> dict[str, str]:
        with turn(job(folder, *overrides)) as it:
            drafts = sample(it, it.prompts(), n=2)
            stages = (*grade(it, drafts).stages, *grade_overall(it, drafts).stages)
            return {stage.stage.rpartition(":")[2]: stage.identity for stage in stages}

    own = tmp_path / "own"
    own.mkdir()
    (own / "honesty.txt").write_text("Honest? {instruction} {texts} {form}")
    papers = identities(tmp_path / "1", "grading.templates=ultrafeedback")
    changed = identities(tmp_path / "2", f"grading.templates={own}")
    assert {name for name in papers if papers[name] != changed[name]} == {"honesty"}
    warmer = identities(tmp_path / "3", "grading.sampling.temperature=0.5")
    assert not set(papers.values()) & set(warmer.values())


def test_the_critic_grades_where_no_other_model_is_named(tmp_path):
    critic = ("grading.model=null", "critic.engine.script=graders:by_figure")
    with turn(job(tmp_path, *critic, script="silent")) as it:
        _, found = graded(it)
        assert {row.annotator for row in found} == {it.run.models.grader.identity}
    assert {row.status for row in found} == {SCORED}


def test_templates_that_can_not_be_used_are_refused_before_anything_is_written(tmp_path):
    wanted = job(tmp_path, "grading.templates=nowhere")
    with pytest.raises(ConfigError, match="shipped sets are tiny, ultrafeedback"), turn(wanted):
        pass
    assert not (tmp_path / "runs").exists()


def test_a_run_that_grades_nothing_needs_no_grader(tmp_path):
    elsewhere = (
        "grading.templates=nowhere",
        "grading.model=nowhere",
        f"reward.model={scripts.__file__}:score",
    )
    config = load_config("tiny", "reward-only", (*SETTINGS, *elsewhere), {})
    with turn(Job(config=config, lake=tmp_path, name="a")) as it:
        assert it.run.grader is None
        with pytest.raises(RuntimeError, match="without a grader"):
            grade(it, sample(it, it.prompts(), n=2))
