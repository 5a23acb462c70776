"""Critiquing candidates: asking the feedback model, reading its replies, asking again, verifying.

A reply that cannot be read is never a number: the candidate is asked about again under a new
derived seed, at most `attempts` times in all, and then stored as unscored with the reason and the
raw reply.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from ...configs.critic import CriticKind
from ...configs.recipes import JudgeWeights
from ...critics.judge import unread
from ...critics.rating_dictionary import AspectRatings
from ...critics.status import Status
from ...critics.verify import Verdict, VerifierCritic
from ...stores.keys import Json, derive_seed, row_id
from ...stores.records import AspectRating, Candidate, Critique, FinishReason, Receipt
from ..data.judged_candidates import VERIFIED, VERIFIER
from ..data.receipts import KEPT
from ..data.stage_names import sampled_again
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.models import Served
from ..run.needs import Asks
from ..run.reporter import Advance
from ..run.run import Run, Verb
from ..run.stage import Stage
from ..run.stage_places import MAIN_THREAD, Places
from .ask_judge import (
    Posed,
    Replies,
    RepliesOf,
    ask_judge,
    commit_judgements,
    judge_line,
    judge_params,
)
from .equal_answers import SharedInquiry, asked_once, equal_params, sharing_receipts
from .retry_unscored import judged

CRITIQUE = Verb("critique", semantics=2)
FIRST = 1
"""The number of a candidate's first critique."""
UNASKED: Mapping[FinishReason, Status] = {
    "failed": Status.FAILED,
    "truncated_thinking": Status.TRUNCATED_THINKING,
}
"""Candidates without an answer that could be critiqued, and the status of their critique."""
CandidateInquiry = SharedInquiry[Candidate, AspectRatings]


def critique(
    it: Iteration,
    candidates: Rows[Candidate],
    *,
    samples: int | None = None,
    judge: JudgeWeights = "frozen",
) -> Rows[Critique]:
    """f(x, y): commit critiques of each candidate, with the reference where the task has one.

    There are as many as `samples`, by default as many as the run's `critic.samples`. The first is
    the same however many there are: it is drawn as the critic is configured, the others at a
    temperature of their own. A judge that `follows` is the iteration's policy, in the place of the
    configured critic.
    """
    count = it.run.config.critic.samples if samples is None else samples
    by = it.as_judge if judge == "follows" else None
    numbers = range(1, count + 1)
    stages = tuple(critiqued(it, candidates, number, judge=by) for number in numbers)
    return Rows(row_type=Critique, stages=stages)


def critiqued(
    it: Iteration,
    candidates: Rows[Candidate],
    sample: int,
    *,
    verifiable: bool | None = None,
    judge: Served | None = None,
) -> Planned:
    """Commit one critique a candidate: the first of each, or another."""
    judging = Judging(
        run=it.run,
        iteration=it.number,
        candidates=lambda chunk: it.chunk(candidates, chunk),
        sample=sample,
        verifiable=verifiable,
        judge=judge,
    )
    owed = it.work(CRITIQUE, judging.params, candidates)
    label = sampled_again(f"critique:{candidates.label}", sample)
    return judged(it.run, it.number, label, owed, judging)


@dataclass(frozen=True, kw_only=True)
class Judging:
    """A stage of critiques: one a candidate, by the feedback model, the verifier, or both.

    `candidates` gives those of a chunk, when it is its turn. `sample` numbers the critiques of a
    candidate. `by` is who judges, if not whom the configuration names, and `judge` the model that
    is asked, if not the critic's; only candidates are judged whose prompts are `verifiable`, or are
    not, where that is said. Where a candidate's id does not say what it says, as that of one that
    is drawn anew, a critique's hashes the text (`by_text`).
    """

    run: Run
    iteration: int
    candidates: Callable[[int], Sequence[Candidate]]
    sample: int = FIRST
    by: CriticKind | None = None
    verifiable: bool | None = None
    by_text: bool = False
    judge: Served | None = None

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
            judge |= judge_params(self.run, self._model, config)
            judge |= equal_params(config.equal_answers)
        if self.sample > FIRST:
            judge["sample"], judge["temperature"] = self.sample, config.samples_temperature
        return judge

    @property
    def where(self) -> Places:
        """Where the critic is asked; the verifier, and above all the user's own, runs here."""
        kind = self._kind
        if kind == "verifier":
            return MAIN_THREAD
        asked = self.run.places.of(self._model)
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
                judge_line(self.run, self._model, config, temperature=self._warmth),
                stage,
                Critique,
                work=lambda unit: self._asked(self._judged(unit.chunk), replies(unit)),
                rows=lambda unit, asked: self._critiques(asked, replies(unit)),
                noted=self._noted,
            )

    def verified(self, chunk: int) -> list[Critique]:
        """Return the verifier's verdicts on a chunk, as critiques."""
        candidates = self._judged(chunk)
        verdicts = self._verdicts(candidates)
        return [self._verified(c, v) for c, v in zip(candidates, verdicts, strict=True)]

    @property
    def _kind(self) -> CriticKind:
        return self.by or self.run.config.critic.kind

    @property
    def _model(self) -> Served:
        """The model that is asked."""
        return self.judge or self.run.models.feedback

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

    def critique_id(self, candidate: Candidate) -> str:
        """Return the id of what is said of a candidate."""
        text = (candidate.text,) if self.by_text else ()
        return row_id("crit", [candidate.candidate_id, self.identity, *text])

    def _asked(
        self, candidates: Sequence[Candidate], replies: Replies[Critique]
    ) -> list[CandidateInquiry]:
        """Ask about each candidate that was answered, once where several say the same."""
        answered = [c for c in candidates if c.finish_reason not in UNASKED]
        shown, equal = asked_once(answered, self.run.config.critic.equal_answers)
        named = frozenset(candidate.candidate_id for candidate in shown)
        found = list[CandidateInquiry]()
        for candidate in candidates:
            name = candidate.candidate_id
            if name in named:
                of = {name: equal[name]} if name in equal else {}
                asked = CandidateInquiry(subject=candidate, pose=self._pose, equal=of)
                kept = replies.kept(self._ids(asked))
                again = replace(asked, most=replies.most, attempts=replies.had)
                found.append(asked if kept else again)
            elif candidate.finish_reason in UNASKED:
                found.append(CandidateInquiry(subject=candidate, pose=self._pose))
        return found

    def _ids(self, asked: CandidateInquiry) -> list[str]:
        """Return the ids of all critiques that are made of a reply."""
        return [self.critique_id(candidate) for candidate, _ in asked.sharing(asked.subject)]

    def _noted(self, asked: Sequence[CandidateInquiry]) -> list[Receipt]:
        fates = {KEPT: [one.subject.candidate_id for one in asked]}
        how = self.run.config.critic.equal_answers
        return sharing_receipts(self.iteration, "critique", how, asked, fates)

    def _pose(self, candidate: Candidate, number: int) -> Posed[AspectRatings]:
        prompt, name = self.run.prompts[candidate.prompt_id], self.critique_id(candidate)
        seed = derive_seed(self.run.config.seed, "critique", name, number)
        key = self.run.guard(name, self._model)
        return Posed(self.run.critic.ask(prompt, candidate.text, key), name, seed)

    def _verdicts(self, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        prompts = self.run.prompts
        return self.run.verifier.verify([(prompts[c.prompt_id], c.text) for c in candidates])

    def _critiques(
        self, asked: Sequence[CandidateInquiry], replies: Replies[Critique]
    ) -> list[Critique]:
        beside: Mapping[str, tuple[AspectRating, ...]] = {}
        if self._kind == "both":
            told = [c for one in asked for c, _ in one.sharing(one.subject)]
            verdicts = zip(told, self._verdicts(told), strict=True)
            beside = {c.candidate_id: _rated(verdict) for c, verdict in verdicts}
        return [
            row
            for one in asked
            for row in replies.kept(self._ids(one))
            or [
                self._critique(one, candidate, beside.get(candidate.candidate_id, ()))
                for candidate, _ in one.sharing(one.subject)
            ]
        ]

    def _critique(
        self,
        asked: CandidateInquiry,
        candidate: Candidate,
        verified: tuple[AspectRating, ...],
    ) -> Critique:
        """Return what is stored of a candidate: what was said of it, or of one that is equal."""
        prompt, critic = self.run.prompts[candidate.prompt_id], self.run.critic
        (reading,) = asked.readings or unread(
            UNASKED.get(candidate.finish_reason, Status.FAILED), critic.expected(prompt)
        )
        shares = candidate is not asked.subject
        return self._row(candidate)(
            critic=self._model.identity,
            aspects=reading.value + verified,
            text=asked.text,
            reference_used=critic.shows_reference(prompt),
            status=reading.status,
            attempts=asked.attempts,
            same_as=self.critique_id(asked.subject) if shares else None,
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
            critique_id=self.critique_id(candidate),
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


ASKS: Asks = {critique: ("critic",)}
