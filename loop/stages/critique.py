"""Critiquing candidates by the feedback model, by the verifier, or by both.

A candidate whose critique cannot be read within `critic.attempts` replies is stored as unscored,
with the reason and the raw reply. The verifier's verdicts are critiques whose rows name it as the
critic; no model is involved, so they are never retried.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...configs.judging import CriticKind
from ...configs.recipes import JudgeWeights
from ...critics.feedback import AspectRatings
from ...critics.judge import unread
from ...critics.status import Status
from ...critics.verify import Verdict, VerifierCritic
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import AspectRating, Candidate, Critique, FilterCount, FinishReason
from ...stores.schemas import RowsByType
from ..data.filter_counts import KEPT
from ..data.judged_candidates import VERIFIED, VERIFIER
from ..data.stage_names import sampled_again
from ..run.device_inventory import MAIN_THREAD, Places
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.models import Served
from ..run.run import Run, Verb
from .judging import (
    PENDING,
    Alike,
    JudgedStage,
    JudgeRequest,
    Posed,
    Replies,
    equal_params,
    group_equal,
    judge_client,
    judge_params,
    sharing_counts,
)

CRITIQUE, VERIFY = Verb("critique", semantics=2), Verb("verify")
FIRST = 1
"""The number of a candidate's first critique."""
SAMPLES_TEMPERATURE = 0.7
"""The temperature of the critiques of a candidate after the first."""
UNASKED: Mapping[FinishReason, Status] = {
    "failed": Status.FAILED,
    "truncated_thinking": Status.TRUNCATED_THINKING,
}
"""Candidates without an answer that could be critiqued, and the status of their critique."""
AnswerRequest = JudgeRequest[Alike, AspectRatings, Critique]


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
    planned = commit_critiques(it, candidates, FIRST, unverifiable=True)
    return Rows(row_type=Critique, stages=(planned,))


def verify(it: Iteration, candidates: Rows[Candidate]) -> Rows[Critique]:
    """Commit the verifier's verdict on each whole candidate whose prompt it can verify."""
    can = it.run.verifier.can_verify

    def whole(chunk: int) -> list[Candidate]:
        found = it.chunk(candidates, chunk)
        return [c for c in found if c.usable and can(it.run.prompts[c.prompt_id])]

    verifying = critique_stage(it.run, it.number, whole, kind="verifier")
    work = it.work(VERIFY, {**verifying.identity, "verifiable": True}, candidates)

    def make(unit: Unit) -> RowsByType:
        return {Critique: verifying.verifier_critiques(whole(unit.chunk))}

    return it.rows(Critique, f"verify:{candidates.label}", work, make)


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
    kind: CriticKind | None = None,
    sample: int = FIRST,
    judge: Served | None = None,
    by_text: bool = False,
) -> "Critiquing":
    """Return the stage of one critique per candidate by the configured kind of critic, or another.

    `judge` replaces the critic's model. See `Critiquing` for the other arguments.
    """
    config, client = run.config.critic, None
    kind = kind or config.kind
    if kind != "verifier":
        warmth = SAMPLES_TEMPERATURE if sample > FIRST else None
        client = judge_client(run, judge or run.models.feedback, config, temperature=warmth)
    return Critiquing(
        run=run,
        iteration=iteration,
        client=client,
        attempts=config.attempts,
        kind=kind,
        candidates=candidates,
        sample=sample,
        by_text=by_text,
    )


@dataclass(frozen=True, kw_only=True)
class Critiquing(JudgedStage[Alike, AspectRatings, Critique]):
    """A stage of critiques, one per candidate, by the feedback model, the verifier, or both.

    `candidates` returns a chunk's candidates when it begins. `sample` numbers the critiques of a
    candidate. If a candidate's id does not determine its text (an answer that is sampled again), a
    critique's id includes the text (`by_text`).
    """

    row_type = Critique
    kind: CriticKind
    candidates: Callable[[int], Sequence[Candidate]]
    sample: int = FIRST
    by_text: bool = False

    def _depends_on(self) -> Mapping[str, Json]:
        verifier = {} if self.kind == "feedback" else {"verifier": _verifier(self.run).digest}
        sample = {"sample": self.sample, "temperature": SAMPLES_TEMPERATURE}
        return {
            "kind": self.kind,
            **verifier,
            **({} if self.kind == "verifier" else self._model_params()),
            **(sample if self.sample > FIRST else {}),
        }

    def _model_params(self) -> Mapping[str, Json]:
        """Return the inputs of the feedback model's critiques."""
        config = self.run.config.critic
        return {
            "critic": self.run.critic.digest,
            **judge_params(self.run, self.judge, config),
            **equal_params(config.equal_answers),
        }

    @property
    def where(self) -> Places:
        """The places of the critic; a user's verifier also needs the main thread."""
        own = self.kind == "both" and self.run.verifier.own is not None
        return super().where | MAIN_THREAD if own else super().where

    def critique_id(self, candidate: Candidate) -> str:
        """Return the id of the critique of a candidate."""
        text = (candidate.text,) if self.by_text else ()
        return row_id("crit", [candidate.candidate_id, self.identity, *text])

    def verifier_critiques(self, candidates: Sequence[Candidate]) -> list[Critique]:
        """Return the verifier's verdicts on candidates, as critiques."""
        critic, rows = _verifier(self.run), list[Critique]()
        for candidate, verdict in zip(candidates, _verdicts(self.run, candidates), strict=True):
            prompt = self.run.prompts[candidate.prompt_id]
            reading, used = critic.read(prompt, verdict), prompt.reference is not None
            row = replace(
                self._unjudged(candidate, VERIFIER, reference_used=used),
                aspects=reading.value,
                text=critic.text(prompt, verdict),
                status=reading.status,
                attempts=1,
            )
            rows.append(row)
        return rows

    def _subjects(self, chunk: int) -> Iterator[tuple[Alike, list[Critique]]]:
        found = self.candidates(chunk)
        if self.kind == "verifier":
            for candidate, row in zip(found, self.verifier_critiques(found), strict=True):
                yield (candidate,), [row]
            return
        critic = self.run.critic
        answered = [c for c in found if c.finish_reason not in UNASKED]
        for alike in group_equal(answered, self.run.config.critic.equal_answers):
            shows = critic.shows_reference(self.run.prompts[alike[0].prompt_id])
            first, *others = (
                self._unjudged(c, self.judge.identity, reference_used=shows) for c in alike
            )
            yield alike, [first, *(replace(row, same_as=first.critique_id) for row in others)]
        for candidate in found:
            if (status := UNASKED.get(candidate.finish_reason)) is not None:
                prompt = self.run.prompts[candidate.prompt_id]
                (reading,) = unread(status, critic.expected_reply(prompt))
                shows = critic.shows_reference(prompt)
                row = self._unjudged(candidate, self.judge.identity, reference_used=shows)
                yield (candidate,), [replace(row, aspects=reading.value, status=reading.status)]

    def _unjudged(self, candidate: Candidate, critic: str, *, reference_used: bool) -> Critique:
        """Return the critique of a candidate before it is judged."""
        return Critique(
            critique_id=self.critique_id(candidate),
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
            iteration=self.iteration,
            critic=critic,
            aspects=(),
            text="",
            reference_used=reference_used,
            status=PENDING,
            attempts=0,
            sample=self.sample if self.sample > FIRST else None,
        )

    def _pose(self, subject: Alike, attempt: int) -> Posed[AspectRatings]:
        shown, name = subject[0], self.critique_id(subject[0])
        question = self.run.critic.ask(
            self.run.prompts[shown.prompt_id], shown.text, self.guard(name)
        )
        seed = derive_seed(self.run.config.seed, "critique", name, attempt)
        return Posed(question, name, seed)

    def _fill(self, row: Critique, value: AspectRatings, place: int) -> Critique:
        del place
        return replace(row, aspects=value)

    def _places(self, request: AnswerRequest) -> list[int]:
        return [0] * len(request.rows)

    def _judgements(self, requests: Sequence[AnswerRequest], replies: Replies) -> list[Critique]:
        rows = super()._judgements(requests, replies)
        if self.kind != "both":
            return rows
        candidates = {c.candidate_id: c for one in requests for c in one.subject}
        new = [r for r in rows if replies.rows.get(r.critique_id) is not r]
        verdict_rows = _verdicts(self.run, [candidates[row.candidate_id] for row in new])
        rated = {
            row.critique_id: _verifier_rating(v) for row, v in zip(new, verdict_rows, strict=True)
        }
        return [replace(r, aspects=r.aspects + rated.get(r.critique_id, ())) for r in rows]

    def _filter_counts_of(self, requests: Sequence[AnswerRequest]) -> list[FilterCount]:
        if self.kind == "verifier":
            return []
        groups = [one.subject for one in requests]
        fates = {KEPT: [group[0].candidate_id for group in groups]}
        how = self.run.config.critic.equal_answers
        return sharing_counts(self.iteration, "critique", how, groups, fates)


def _verifier_rating(verdict: Verdict) -> tuple[AspectRating, ...]:
    """Return the verifier's rating as an aspect rating; empty without a verdict."""
    if verdict.rating is None:
        return ()
    comment = verdict.reason if verdict.remark is None else verdict.remark
    return (AspectRating(name=VERIFIED, rating=verdict.rating, comment=comment),)


def _verdicts(run: Run, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
    return run.verifier.verify([(run.prompts[c.prompt_id], c.text) for c in candidates])


def _verifier(run: Run) -> VerifierCritic:
    """Return how the run's verifier writes critiques."""
    return VerifierCritic(run.verifier, run.config.critic.task_aspects)
