"""Critiquing candidates: asking the feedback model, reading its replies, asking again, verifying.

A reply that cannot be read is never a number: the candidate is asked about again under a new
derived seed, at most `attempts` times in all, and then stored as unscored with the reason and the
raw reply.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from ...configs.critic import CriticKind
from ...critics.judge import Status, unread
from ...critics.rating_dictionary import AspectRatings
from ...critics.verify import Verdict, VerifierCritic
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import AspectRating, Candidate, Critique, FinishReason
from ...stores.schemas import RowsByType
from ..data.judged_candidates import VERIFIED, VERIFIER
from ..data.stage_names import sampled_again
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.needs import Asks
from ..run.reporter import Advance
from ..run.run import Run, Verb
from ..run.stage import Stage
from ..run.stage_places import MAIN_THREAD, Places
from .ask_judge import (
    JudgeInquiry,
    Posed,
    Replies,
    RepliesOf,
    ask_judge,
    commit_judgements,
    judge_line,
    judge_params,
)
from .retry_unscored import judged

CRITIQUE, VERIFY = Verb("critique", semantics=2), Verb("verify")
FIRST = 1
"""The number of a candidate's first critique."""
UNASKED: Mapping[FinishReason, Status] = {
    "failed": Status.FAILED,
    "truncated_thinking": Status.TRUNCATED_THINKING,
}
"""Candidates without an answer that could be critiqued, and the status of their critique."""


def critique(
    it: Iteration, candidates: Rows[Candidate], *, samples: int | None = None
) -> Rows[Critique]:
    """f(x, y): commit critiques of each candidate, with the reference where the task has one.

    There are as many as `samples`, by default as many as the run's `critic.samples`. The first is
    the same however many there are: it is drawn as the critic is configured, the others at a
    temperature of their own.
    """
    count = it.run.config.critic.samples if samples is None else samples
    stages = tuple(_critiqued(it, candidates, number) for number in range(1, count + 1))
    return Rows(row_type=Critique, stages=stages)


def verify(it: Iteration, candidates: Rows[Candidate]) -> Rows[Critique]:
    """Commit the verifier's verdict on each whole candidate whose prompt it can verify."""
    judging = Judging(
        run=it.run,
        iteration=it.number,
        candidates=lambda chunk: [c for c in it.chunk(candidates, chunk) if c.usable],
        by="verifier",
        verifiable=True,
    )
    owed = it.work(VERIFY, judging.params, candidates)

    def make(unit: Unit) -> RowsByType:
        return {Critique: judging.verified(unit.chunk)}

    return it.rows(Critique, f"verify:{candidates.label}", owed, make)


def critique_unverifiable(it: Iteration, candidates: Rows[Candidate]) -> Rows[Critique]:
    """Commit a critique of each candidate on which `verify` has no verdict: nobody asks twice."""
    return Rows(row_type=Critique, stages=(_critiqued(it, candidates, FIRST, verifiable=False),))


def _critiqued(
    it: Iteration, candidates: Rows[Candidate], sample: int, *, verifiable: bool | None = None
) -> Planned:
    """Commit one critique a candidate: the first of each, or another."""
    judging = Judging(
        run=it.run,
        iteration=it.number,
        candidates=lambda chunk: it.chunk(candidates, chunk),
        sample=sample,
        verifiable=verifiable,
    )
    owed = it.work(CRITIQUE, judging.params, candidates)
    label = sampled_again(f"critique:{candidates.label}", sample)
    return judged(it.run, it.number, label, owed, judging)


@dataclass(frozen=True, kw_only=True)
class Judging:
    """A stage of critiques: one a candidate, by the feedback model, the verifier, or both.

    `candidates` gives those of a chunk, when it is its turn. `sample` numbers the critiques of a
    candidate. `by` is who judges, if not whom the configuration names; only candidates are judged
    whose prompts are `verifiable`, or are not, where that is said.
    """

    run: Run
    iteration: int
    candidates: Callable[[int], Sequence[Candidate]]
    sample: int = FIRST
    by: CriticKind | None = None
    verifiable: bool | None = None

    @property
    def attempts(self) -> int:
        """How many replies to a question are asked for at once."""
        return self.run.config.critic.attempts

    @property
    def params(self) -> Json:
        """What the keys of the stage hold: all that its rows depend on besides the candidates."""
        replies = {} if self._kind == "verifier" else {"attempts": self.attempts}
        about = {} if self.verifiable is None else {"verifiable": self.verifiable}
        return {**self.identity, **replies, **about}

    @cached_property
    def identity(self) -> Mapping[str, Json]:
        """What a critique depends on besides its candidate and the number of replies."""
        config = self.run.config.critic
        judge: dict[str, Json] = {"kind": self._kind}
        if self._kind != "feedback":
            judge["verifier"] = self._verifier.digest
        if self._kind != "verifier":
            judge["critic"] = self.run.critic.digest
            judge |= judge_params(self.run, self.run.models.feedback, config)
        if self.sample > FIRST:
            judge["sample"], judge["temperature"] = self.sample, config.samples_temperature
        return judge

    @property
    def where(self) -> Places:
        """Where the critic is asked; the verifier, and above all the user's own, runs here."""
        kind = self._kind
        if kind == "verifier":
            return MAIN_THREAD
        asked = self.run.places.of(self.run.models.feedback)
        verifies_here = kind == "both" and self.run.verifier.own is not None
        return asked | MAIN_THREAD if verifies_here else asked

    def pay(self, stage: Stage, replies: RepliesOf[Critique]) -> None:
        """Critique what the stage owes; the verifier needs no replies."""
        config = self.run.config.critic
        if self._kind == "verifier":
            for unit in stage.units():
                commit_judgements(stage, unit, Critique, self.verified(unit.chunk), Advance())
        else:
            ask_judge(
                judge_line(self.run, self.run.models.feedback, config, temperature=self._warmth),
                stage,
                Critique,
                work=lambda u: [self._asked(c, replies(u)) for c in self._judged(u.chunk)],
                rows=lambda unit, asked: self._critiques(asked, replies(unit)),
            )

    def verified(self, chunk: int) -> list[Critique]:
        """Return the verifier's verdicts on a chunk, as critiques."""
        candidates = self._judged(chunk)
        verdicts = self._verdicts(candidates)
        return [self._verified(c, v) for c, v in zip(candidates, verdicts, strict=True)]

    @property
    def _kind(self) -> CriticKind:
        return self.by or self.run.config.critic.kind

    def _judged(self, chunk: int) -> Sequence[Candidate]:
        """Return the candidates of a chunk that are judged."""
        found, run = self.candidates(chunk), self.run
        if self.verifiable is None:
            return found
        can = run.verifier.can_verify
        return [c for c in found if can(run.prompts[c.prompt_id]) == self.verifiable]

    @property
    def _warmth(self) -> float | None:
        """The temperature of a critique after the first."""
        return self.run.config.critic.samples_temperature if self.sample > FIRST else None

    @property
    def _verifier(self) -> VerifierCritic:
        aspects = self.run.config.critic.task_aspects
        verifier = self.run.verifier
        return VerifierCritic(
            task_aspects=aspects,
            own=verifier.own,
            sentence_match=verifier.sentence_match,
            limit_s=verifier.limit_s,
        )

    def _critique_id(self, candidate: Candidate) -> str:
        return row_id("crit", [candidate.candidate_id, self.identity])

    def _asked(
        self, candidate: Candidate, replies: Replies[Critique]
    ) -> JudgeInquiry[Candidate, AspectRatings]:
        kept = replies.kept([self._critique_id(candidate)])
        if kept or candidate.finish_reason in UNASKED:
            return JudgeInquiry(subject=candidate, pose=self._pose)
        return JudgeInquiry(
            subject=candidate, pose=self._pose, most=replies.most, attempts=replies.had
        )

    def _pose(self, candidate: Candidate, number: int) -> Posed[AspectRatings]:
        prompt, name = self.run.prompts[candidate.prompt_id], self._critique_id(candidate)
        seed = derive_seed(self.run.config.seed, "critique", name, number)
        return Posed(self.run.critic.ask(prompt, candidate.text, self.run.guard(name)), name, seed)

    def _verdicts(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        prompts = self.run.prompts
        return self.run.verifier.verify([(prompts[c.prompt_id], c.text) for c in candidates])

    def _critiques(
        self, asked: Sequence[JudgeInquiry[Candidate, AspectRatings]], replies: Replies[Critique]
    ) -> list[Critique]:
        beside: list[tuple[AspectRating, ...]] = [()] * len(asked)
        if self._kind == "both":
            beside = [_rated(verdict) for verdict in self._verdicts([a.subject for a in asked])]
        return [
            row
            for one, verified in zip(asked, beside, strict=True)
            for row in replies.kept([self._critique_id(one.subject)])
            or [self._critique(one, verified)]
        ]

    def _critique(
        self, asked: JudgeInquiry[Candidate, AspectRatings], verified: tuple[AspectRating, ...]
    ) -> Critique:
        prompt, critic = self.run.prompts[asked.subject.prompt_id], self.run.critic
        (reading,) = asked.readings or unread(
            UNASKED.get(asked.subject.finish_reason, Status.FAILED), critic.expected(prompt)
        )
        return self._row(asked.subject)(
            critic=self.run.models.feedback.identity,
            aspects=reading.value + verified,
            text=asked.text,
            reference_used=critic.shows_reference(prompt),
            status=reading.status,
            attempts=asked.attempts,
        )

    def _verified(self, candidate: Candidate, verdict: Verdict) -> Critique:
        prompt, verifier = self.run.prompts[candidate.prompt_id], self._verifier
        reading = verifier.read(prompt, verdict)
        return self._row(candidate)(
            critic=VERIFIER,
            aspects=reading.value,
            text=verifier.text(prompt, verdict),
            reference_used=prompt.reference is not None,
            status=reading.status,
            attempts=1,
        )

    def _row(self, candidate: Candidate) -> partial[Critique]:
        return partial(
            Critique,
            critique_id=self._critique_id(candidate),
            candidate_id=candidate.candidate_id,
            prompt_id=candidate.prompt_id,
            iteration=self.iteration,
            sample=self.sample if self.sample > FIRST else None,
        )


def _rated(verdict: Verdict) -> tuple[AspectRating, ...]:
    """The verifier's rating beside the feedback model's; none where nothing can be verified."""
    if verdict.rating is None:
        return ()
    comment = verdict.reason if verdict.remark is None else verdict.remark
    return (AspectRating(name=VERIFIED, rating=verdict.rating, comment=comment),)


ASKS: Asks = {critique: ("critic",), critique_unverifiable: ("critic",)}
