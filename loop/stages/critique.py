"""Critiquing candidates by the feedback model, by the verifier, or by both.

A candidate whose critique cannot be read within `critic.attempts` replies is stored as unscored,
with the reason and the raw reply.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...configs.recipes import JudgeWeights
from ...critics.judge import Reading, unread
from ...critics.rating_dictionary import AspectRatings
from ...critics.status import Status
from ...critics.verify import Verdict
from ...stores.keys import Json, derive_seed
from ...stores.records import AspectRating, Candidate, Critique, FilterCount, FinishReason
from ..data.filter_counts import KEPT
from ..data.judged_candidates import VERIFIED
from ..data.stage_names import sampled_again
from ..run.device_placement import MAIN_THREAD, Places
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.models import Served
from ..run.run import Run, Verb, Work
from .judging import (
    Alike,
    JudgedStage,
    JudgeRequest,
    Posed,
    Replies,
    equal_params,
    group_equal,
    judge_line,
    judge_params,
    sharing_counts,
)
from .retry_unscored import run_judgements
from .verify_candidates import (
    FIRST,
    SAMPLES_TEMPERATURE,
    Verifying,
    about,
    critique_id,
    sample_params,
    verdicts,
    verifier_critic,
)

CRITIQUE = Verb("critique", semantics=2)
UNASKED: Mapping[FinishReason, Status] = {
    "failed": Status.FAILED,
    "truncated_thinking": Status.TRUNCATED_THINKING,
}
"""Candidates without an answer that could be critiqued, and the status of their critique."""
AnswerInquiry = JudgeRequest[Alike, AspectRatings]


def critique(
    it: Iteration,
    candidates: Rows[Candidate],
    *,
    samples: int | None = None,
    judge: JudgeWeights = "frozen",
) -> Rows[Critique]:
    """f(x, y): commit critiques of each candidate, with the reference if the task has one.

    `samples` is the number of critiques per candidate, by default the run's `critic.samples`. The
    first uses the critic's configured sampling and does not depend on their number; the others use
    `SAMPLES_TEMPERATURE`. With `judge` "follows" the iteration's policy is the critic, instead of
    the configured one.
    """
    count = it.run.config.critic.samples if samples is None else samples
    by = it.as_judge if judge == "follows" else None
    numbers = range(1, count + 1)
    stages = tuple(commit_critiques(it, candidates, number, judge=by) for number in numbers)
    return Rows(row_type=Critique, stages=stages)


def critique_unverifiable(it: Iteration, candidates: Rows[Candidate]) -> Rows[Critique]:
    """Commit a critique of each candidate that `verify` cannot judge."""
    return Rows(
        row_type=Critique, stages=(commit_critiques(it, candidates, FIRST, unverifiable=True),)
    )


def commit_critiques(
    it: Iteration,
    candidates: Rows[Candidate],
    sample: int,
    *,
    unverifiable: bool = False,
    judge: Served | None = None,
) -> Planned:
    """Commit one critique a candidate, the first or another, or only if it is `unverifiable`."""
    can, prompts = it.run.verifier.can_verify, it.run.prompts

    def judged_of(chunk: int) -> Sequence[Candidate]:
        found = it.chunk(candidates, chunk)
        return [c for c in found if not (unverifiable and can(prompts[c.prompt_id]))]

    judging = critique_stage(it.run, it.number, judged_of, sample=sample, judge=judge)
    params = {**judging.params, **({"verifiable": False} if unverifiable else {})}
    label = sampled_again(f"critique:{candidates.label}", sample)
    return judging.plan(label, it.work(CRITIQUE, params, candidates))


def critique_stage(
    run: Run,
    iteration: int,
    candidates: Callable[[int], Sequence[Candidate]],
    *,
    sample: int = FIRST,
    judge: Served | None = None,
    by_text: bool = False,
    committed: Callable[[int], None] = lambda _: None,
) -> "Critiquing | Verifying":
    """Return the stage of one critique per candidate by the configured kind of critic.

    `judge` replaces the critic's model. See `Verifying` for the other arguments.
    """
    config = run.config.critic
    if config.kind == "verifier":
        return Verifying(
            run=run,
            iteration=iteration,
            candidates=candidates,
            sample=sample,
            by_text=by_text,
            committed=committed,
        )
    warmth = SAMPLES_TEMPERATURE if sample > FIRST else None
    return Critiquing(
        run=run,
        iteration=iteration,
        line=judge_line(run, judge or run.models.feedback, config, temperature=warmth),
        attempts=config.attempts,
        committed=committed,
        candidates=candidates,
        sample=sample,
        by_text=by_text,
    )


@dataclass(frozen=True, kw_only=True)
class Critiquing(JudgedStage[Alike, AspectRatings, Critique]):
    """A stage of critiques by the feedback model, plus the verifier if `critic.kind` is both."""

    row_type = Critique
    candidates: Callable[[int], Sequence[Candidate]]
    sample: int = FIRST
    by_text: bool = False

    def _depends_on(self) -> Mapping[str, Json]:
        config = self.run.config.critic
        both = {"verifier": verifier_critic(self.run).digest} if config.kind == "both" else {}
        return {
            "kind": config.kind,
            "critic": self.run.critic.digest,
            **both,
            **judge_params(self.run, self.judge, config),
            **equal_params(config.equal_answers),
            **sample_params(self.sample),
        }

    @property
    def where(self) -> Places:
        """The places of the critic; a user's verifier also needs the main thread."""
        asked = self.run.places.of(self.judge)
        own = self.run.config.critic.kind == "both" and self.run.verifier.own is not None
        return asked | MAIN_THREAD if own else asked

    def plan(self, label: str, work: Work) -> Planned:
        """Plan and run the stage."""
        return run_judgements(self, label, work)

    def _subjects(self, chunk: int) -> Iterable[Alike]:
        found = self.candidates(chunk)
        answered = [c for c in found if c.finish_reason not in UNASKED]
        yield from group_equal(answered, self.run.config.critic.equal_answers)
        yield from ((c,) for c in found if c.finish_reason in UNASKED)

    def _pose(self, subject: Alike, attempt: int) -> Posed[AspectRatings]:
        shown, name = subject[0], self.critique_id(subject[0])
        question = self.run.critic.ask(
            self.run.prompts[shown.prompt_id], shown.text, self.guard(name)
        )
        seed = derive_seed(self.run.config.seed, "critique", name, attempt)
        return Posed(question, name, seed)

    def _ids(self, subject: Alike) -> list[str]:
        return [self.critique_id(candidate) for candidate in subject]

    def _decide_without_judge(self, subject: Alike) -> Sequence[Reading[AspectRatings]] | None:
        status = UNASKED.get(subject[0].finish_reason)
        prompt = self.run.prompts[subject[0].prompt_id]
        return None if status is None else unread(status, self.run.critic.expected_reply(prompt))

    def _rows(self, asked: AnswerInquiry) -> Iterator[Critique]:
        first, (reading,) = asked.subject[0], asked.readings
        shows = self.run.critic.shows_reference(self.run.prompts[first.prompt_id])
        for candidate in asked.subject:
            yield about(candidate, self.iteration, self.sample)(
                critique_id=self.critique_id(candidate),
                critic=self.judge.identity,
                aspects=reading.value,
                text=asked.text,
                reference_used=shows,
                status=reading.status,
                attempts=asked.attempts,
                same_as=None if candidate is first else self.critique_id(first),
            )

    def _judgements(
        self, asked: Sequence[AnswerInquiry], replies: Replies[Critique]
    ) -> list[Critique]:
        rows = super()._judgements(asked, replies)
        if self.run.config.critic.kind != "both":
            return rows
        told = {c.candidate_id: c for one in asked for c in one.subject}
        new = [r for r in rows if replies.rows.get(r.critique_id) is not r]
        said = verdicts(self.run, [told[row.candidate_id] for row in new])
        rated = {row.critique_id: _verifier_rating(v) for row, v in zip(new, said, strict=True)}
        return [replace(r, aspects=r.aspects + rated.get(r.critique_id, ())) for r in rows]

    def _filter_counts_of(self, asked: Sequence[AnswerInquiry]) -> list[FilterCount]:
        groups = [one.subject for one in asked]
        fates = {KEPT: [group[0].candidate_id for group in groups]}
        how = self.run.config.critic.equal_answers
        return sharing_counts(self.iteration, "critique", how, groups, fates)

    def critique_id(self, candidate: Candidate) -> str:
        """Return the id of the critique of a candidate."""
        return critique_id(candidate, self.identity, by_text=self.by_text)


def _verifier_rating(verdict: Verdict) -> tuple[AspectRating, ...]:
    """Return the verifier's rating as an aspect rating; empty without a verdict."""
    if verdict.rating is None:
        return ()
    comment = verdict.reason if verdict.remark is None else verdict.remark
    return (AspectRating(name=VERIFIED, rating=verdict.rating, comment=comment),)
