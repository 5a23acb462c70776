"""The smoke test: a few prompts through every step of a run, before anything long is paid for.

Its stages are stored in the first iteration: they can be inspected, they count in the budget, and
are resumed after a crash. A passed test is not repeated. A failed test is repeated with other draws
when the run is resumed: its cause may have been fixed.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from ...configs.recipes import JudgeWeights
from ...stores.keys import Json
from ...stores.records import (
    SCORED,
    Breakdown,
    Candidate,
    Claim,
    Critique,
    Grade,
    Preference,
    Prompt,
    PromptReview,
)
from ...stores.side_evals import SMOKE, smoke_name, smoke_test_of
from ..data.judged_candidates import VERIFIER
from ..run.handles import Rows, chunk_prompts
from ..run.iteration import Iteration
from ..run.models import GRADING
from ..run.unread_replies import ReplyCount, UnreadRepliesError, shorten_reply
from .claims import break_up, judge_claims
from .compare import annotate
from .critique import critique
from .grade import grade, grade_overall, score_answers
from .reward import reward
from .sample import sample
from .select_prompts import review_prompts
from .smoke_training import try_trainings

DRAWN = 2
"""Answers a prompt: two, so that they can be compared."""
BEFORE = frozenset({"prompts", "initial"})
"""The stages that precede the test."""
REMEDIES: Mapping[str, str] = {
    "length": (
        "They do not end within policy.sampling.max_tokens={}: a base model, or a chat template "
        "without its end token, never ends what it writes; else raise that bound"
    ),
    "truncated_thinking": (
        "They do not end to think within policy.sampling.max_tokens={}: raise that, or turn "
        "thinking off by policy.engine.chat_template_kwargs"
    ),
    "empty": "The policy's answers are empty: look at its chat template with `lpfloop preview`",
    "overlong": (
        "The prompts do not fit into the policy's context: raise policy.engine.max_model_len, or "
        "leave long prompts out by prompts.rules.max_chars"
    ),
}
"""What to do if all answers end in this way; the number is policy.sampling.max_tokens."""
Judgement = Critique | Grade | Preference | PromptReview | Breakdown | Claim


def smoke_test(it: Iteration, train: Sequence[Prompt], *, judge: JudgeWeights) -> bool:
    """Run the smoke test on a few train prompts, if it is still due; return whether it ran.

    `judge` is `follows` if each iteration's policy judges its own answers.

    Raises:
        UnreadRepliesError: if no answer is whole, or most replies of a judge cannot be read.
        TrainingError: if a model cannot be trained.
    """
    store, settings = it.run.store, it.run.config.smoke
    events = [event for event in store.journal.events(SMOKE) if isinstance(event, Mapping)]
    made = (state.stage for state in store.journal.stages() if state.done)
    has_begun = any(stage not in BEFORE and not smoke_test_of(stage) for stage in made)
    passed = any(event.get("passed") for event in events)
    if has_begun or passed or not settings.prompts or not train:
        return False
    name = smoke_name(len(events))

    def record(*, passed: bool) -> None:
        event: Json = {"name": name, "passed": passed}
        store.when_there_is_room(lambda: store.journal.record(SMOKE, event))

    try:
        notes = list(_try_all(it, judge, diverse(train, settings.prompts), name))
        it.run.flow.settle()
    except UnreadRepliesError:
        record(passed=False)
        raise
    record(passed=True)
    it.run.reporter.note(f"smoke test passed: {'; '.join(notes)}")
    return True


def diverse(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """Return the first prompts, tasks taking turns."""
    by_task: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_task.setdefault(prompt.task, []).append(prompt)
    turns = zip_longest(*by_task.values())
    return [prompt for turn in turns for prompt in turn if prompt is not None][:count]


def _try_all(
    it: Iteration, judge: JudgeWeights, prompts: Sequence[Prompt], name: str
) -> Iterator[str]:
    """Try everything that the run needs; yield a summary of each part."""
    trainings = it.run.seen.trainings
    chunks = chunk_prompts(prompts, len(prompts))
    drawn = sample(it, chunks, n=DRAWN, label=f"sample:{name}", purpose=name)
    answers = Rows(row_type=Candidate, stages=drawn.stages, called=name)
    candidates = it.chunk(answers, 0)
    require_whole(it, candidates, f"sample:{name}")
    yield f"{len(prompts)} prompts, {summary_of(candidates)}"
    for stage, rows in _judge_all(it, judge, answers, prompts, name):
        count = ReplyCount()
        for row in rows:
            asked_model = isinstance(row, Preference) or row.attempts > 0
            if asked_model and not (isinstance(row, Critique) and row.critic == VERIFIER):
                count.add(row.status, row.text)
        count.require_read(it.run.config, it.run.store.folder, stage)
        if count.requests:
            read = count.requests - count.unread
            yield f"{stage.partition(':')[0]}: {read} of {count.requests} read"
    if it.run.models.reward_id is not None:
        rewards = it.chunk(reward(it, answers), 0)
        missing = [row.status for row in rewards if row.status != SCORED]
        if len(missing) > it.run.config.smoke.max_parse_failures * len(rewards):
            raise UnreadRepliesError(
                f"reward:{name}: {len(missing)} of {len(rewards)} answers lack a reward "
                f"({missing[0]}; reward.max_length={it.run.config.reward.max_length})",
                it.run.store.folder,
            )
        yield "rewarded"
    if it.run.config.smoke.train and try_trainings(it, answers, trainings, name):
        yield f"one step of {', '.join(trainings)}"


def _judge_all(
    it: Iteration,
    judge: JudgeWeights,
    answers: Rows[Candidate],
    prompts: Sequence[Prompt],
    name: str,
) -> Iterator[tuple[str, Sequence[Judgement]]]:
    """Judge the answers with each judge of the run; yield the stage and its rows."""
    run, graded = it.run, it.run.seen.uses.get(GRADING, ())
    if run.rates or judge == "follows":
        yield f"critique:{name}", it.chunk(critique(it, answers, samples=1, judge=judge), 0)
    if "grade" in graded:
        yield f"grade:{name}", it.chunk(grade(it, answers), 0)
    if "grade_overall" in graded:
        yield f"grade:{name}:overall", it.chunk(grade_overall(it, answers), 0)
    if run.panels.training is not None:
        yield f"annotate:{name}", it.chunk(annotate(it, answers), 0)
    if run.fact_judge is not None:
        broken = break_up(it, answers, run.fact_judge)
        yield f"break_up:{name}", it.chunk(broken, 0)
        yield f"judge_claims:{name}", it.chunk(judge_claims(it, broken, run.fact_judge), 0)
    for form in run.forms.values():
        yield f"score_answers:{name}", it.chunk(score_answers(it, answers, form), 0)
    if run.filters.reviewer is not None:
        label = f"review:{name}"
        reviewer = run.filters.reviewer
        yield label, review_prompts(run, prompts, reviewer, label=label, purpose=name)[1]


def summary_of(candidates: Sequence[Candidate]) -> str:
    """Return a summary of the answers: their mean length and anything odd about them."""
    mean = sum(c.completion_tokens for c in candidates) / len(candidates)
    broken = sum(not c.usable for c in candidates)
    prompt_count = len({c.prompt_id for c in candidates})
    same = prompt_count > 1 and len({c.text for c in candidates}) == 1
    odd = f", {broken} of them cut off or empty: nothing trains on such answers" if broken else ""
    return f"{len(candidates)} answers of {mean:.0f} tokens{odd}{', all the same' if same else ''}"


def require_whole(it: Iteration, candidates: Sequence[Candidate], stage: str) -> None:
    """Refuse to go on if no answer is whole, unless smoke.max_parse_failures allows for all.

    Raises:
        UnreadRepliesError: saying why.
    """
    if any(c.usable for c in candidates) or it.run.config.smoke.max_parse_failures >= 1:
        return
    count = ReplyCount()
    for c in candidates:
        count.add("empty" if c.finish_reason == "stop" else c.finish_reason, c.text)
    usual = count.reasons.most_common(1)[0][0]
    causes = REMEDIES.get(usual, "The requests failed: the logs say why")
    raise UnreadRepliesError(
        f"{stage}: none of the policy's {count.requests} answers is whole ({count.summary}). "
        f"{causes.format(it.run.config.policy.sampling.max_tokens)}. "
        f"{shorten_reply(usual, count.examples[usual])}",
        it.run.store.folder,
    )
