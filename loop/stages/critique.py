"""Critiquing candidates: asking the feedback model, reading its replies, asking again, verifying.

A reply that cannot be read is never a number: the candidate is asked about again under a new
derived seed, at most `attempts` times in all, and then stored as unscored with the reason and the
raw reply.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from ...critics.judge import Status, unread
from ...critics.rating_dictionary import AspectRatings
from ...critics.verify import Verdict, VerifierCritic
from ...stores.journal_reader import Unit
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import AspectRating, Candidate, Critique
from ..data.judged_candidates import VERIFIED, VERIFIER
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.reporter import Advance
from ..run.run import Run, Stage, Verb
from .ask_judge import (
    JudgeInquiry,
    Posed,
    ask_judge,
    commit_judgements,
    judge_line,
    judge_params,
)

CRITIQUE = Verb("critique")


def critique(it: Iteration, candidates: Rows[Candidate]) -> Rows[Critique]:
    """f(x, y): commit one critique a candidate, with the reference where the task has one."""
    judging = Judging(
        run=it.run, iteration=it.number, candidates=lambda chunk: it.chunk(candidates, chunk)
    )
    owed = it.work(CRITIQUE, judging.identity, candidates)
    with it.run.stage(it.number, f"critique:{candidates.label}", owed, judge=True) as stage:
        judging.pay(stage)
    return Rows(row_type=Critique, stages=(stage.planned,))


@dataclass(frozen=True, kw_only=True)
class Judging:
    """A stage of critiques: one a candidate, by the feedback model, the verifier, or both.

    `candidates` gives those of a chunk, when it is its turn.
    """

    run: Run
    iteration: int
    candidates: Callable[[int], Sequence[Candidate]]

    @cached_property
    def identity(self) -> Json:
        """What a critique depends on besides its candidate."""
        config = self.run.config.critic
        judge: dict[str, Json] = {"kind": config.kind}
        if config.kind != "feedback":
            judge["verifier"] = self._verifier.digest
        if config.kind != "verifier":
            judge["critic"] = self.run.critic.digest
            judge |= judge_params(self.run, self.run.models.feedback, config)
        return judge

    def pay(self, stage: Stage) -> None:
        """Critique what the stage owes."""
        config = self.run.config.critic
        if config.kind == "verifier":
            for unit in stage.owed:
                self.run.stop.admit()
                candidates = self.candidates(unit.chunk)
                verdicts = self._verdicts(candidates)
                rows = [self._verified(c, v) for c, v in zip(candidates, verdicts, strict=True)]
                commit_judgements(stage, unit, Critique, rows, Advance())
        else:
            ask_judge(
                judge_line(self.run, self.run.models.feedback, config),
                stage,
                Critique,
                work=lambda unit: [self._asked(c) for c in self.candidates(unit.chunk)],
                rows=self._critiques,
            )

    @property
    def _verifier(self) -> VerifierCritic:
        aspects = self.run.config.critic.task_aspects
        return VerifierCritic(task_aspects=aspects, own=self.run.verifier.own)

    def _critique_id(self, candidate: Candidate) -> str:
        return row_id("crit", [candidate.candidate_id, self.identity])

    def _asked(self, candidate: Candidate) -> JudgeInquiry[Candidate, AspectRatings]:
        drawn = candidate.finish_reason != "failed"
        most = self.run.config.critic.attempts if drawn else 0
        return JudgeInquiry(subject=candidate, pose=self._pose, replies=range(most))

    def _pose(self, candidate: Candidate, number: int) -> Posed[AspectRatings]:
        prompt, name = self.run.prompts[candidate.prompt_id], self._critique_id(candidate)
        seed = derive_seed(self.run.config.seed, "critique", name, number)
        return Posed(self.run.critic.ask(prompt, candidate.text, self.run.guard(name)), name, seed)

    def _verdicts(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        prompts = self.run.prompts
        return self.run.verifier.verify([(prompts[c.prompt_id], c.text) for c in candidates])

    def _critiques(
        self, _unit: Unit, asked: Sequence[JudgeInquiry[Candidate, AspectRatings]]
    ) -> list[Critique]:
        beside: list[tuple[AspectRating, ...]] = [()] * len(asked)
        if self.run.config.critic.kind == "both":
            beside = [_rated(verdict) for verdict in self._verdicts([a.subject for a in asked])]
        return [self._critique(a, verified) for a, verified in zip(asked, beside, strict=True)]

    def _critique(
        self, asked: JudgeInquiry[Candidate, AspectRatings], verified: tuple[AspectRating, ...]
    ) -> Critique:
        prompt, critic = self.run.prompts[asked.subject.prompt_id], self.run.critic
        (reading,) = asked.readings or unread(Status.FAILED, critic.expected(prompt))
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
        )


def _rated(verdict: Verdict) -> tuple[AspectRating, ...]:
    """The verifier's rating beside the feedback model's; none where nothing can be verified."""
    if verdict.rating is None:
        return ()
    comment = verdict.reason if verdict.remark is None else verdict.remark
    return (AspectRating(name=VERIFIED, rating=verdict.rating, comment=comment),)
