"""Sampling y_i ~ pi(x), and other draws from a policy, as requests and as rows."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

from ...configs.load import semantic
from ...configs.schema import SamplingConfig
from ...policies.engines.engine import Completion, Request
from ...stores.journal_reader import Unit
from ...stores.keys import Json, canonical_json, derive_seed, row_id
from ...stores.records import Candidate, CandidateKind, Message, Prompt, storable
from ..run.conditioning import add_control
from ..run.engine_client import EngineClient, engine_sampling
from ..run.handles import Prompts, Rows
from ..run.iteration import Iteration
from ..run.models import Served
from ..run.reporter import UnitStats
from ..run.request_dispatcher import RequestDispatcher
from ..run.run import Run, Verb, Work
from ..run.stage import Stage


def answers(
    it: Iteration,
    prompts: Prompts,
    label: str,
    kind: CandidateKind,
    sampling: SamplingConfig,
    params: Json,
) -> Rows[Candidate]:
    """Draw the policy's answer to each prompt; `params` is all that they depend on."""

    def work(unit: Unit) -> Sequence[Draw]:
        return [
            draw
            for prompt in prompts.chunks[unit.chunk]
            for draw in draws(it, unit.key, prompt, count=1)
        ]

    pending = Work(verb=SAMPLE, params=params, upstream=(prompts.identity,), reads=prompts.each_key)
    drawing = CandidateDrawing(
        run=it.run, iteration=it.number, policy=it.policy, kind=kind, sampling=sampling
    )
    planned = it.run.run_stage(
        it.number,
        label,
        pending,
        lambda stage: drawing.run_units(stage, work),
        places=it.run.places.of(it.policy),
    )
    return Rows(row_type=Candidate, stages=(planned,))


S = TypeVar("S")
Sent = TypeVar("Sent")
Answer = TypeVar("Answer")

SAMPLE = Verb("sample")
CUT_IN_THOUGHT = (
    "{} of {} answers were cut inside their thought and are not used: raise max_tokens ({}) of "
    "their sampling, or set engine.chat_template_kwargs so that the model thinks less"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A candidate to be drawn: all fields of its row that are known beforehand."""

    candidate_id: str
    prompt_id: str
    messages: tuple[Message, ...]
    seed: int
    parent_id: str | None = None
    critique_id: str | None = None
    principle: str | None = None


def sample(
    it: Iteration,
    prompts: Prompts,
    *,
    n: int,
    top_p: float | None = None,
    label: str = "sample",
    purpose: str | None = None,
) -> Rows[Candidate]:
    """y_i ~ pi(x): commit n candidates a prompt, each under a separate seed.

    `top_p` replaces the policy's. A second sampling in an iteration needs another `label`;
    `purpose` is part of the keys, so samplings of the same prompts for different purposes differ.
    """
    config = it.run.config.policy.sampling
    if top_p is not None:
        config = config.model_copy(update={"top_p": top_p})

    def work(chunk: int, identity: Json) -> list[Draw]:
        return [
            draw
            for prompt in prompts.chunks[chunk]
            for draw in draws(it, identity, prompt, count=n)
        ]

    params: dict[str, Json] = {"policy": it.policy.params, "sampling": semantic(config), "n": n}
    if purpose is not None:
        params["for"] = purpose
    pending = Work(verb=SAMPLE, params=params, upstream=(prompts.identity,), reads=prompts.each_key)
    return draw_candidates(it, label, "sample", config, pending, work)


def narrower(top_p: float) -> float | None:
    """Return the nucleus mass that replaces the policy's; None to keep the policy's."""
    return top_p if top_p < 1 else None


def draw_candidates(
    it: Iteration,
    label: str,
    kind: CandidateKind,
    sampling: SamplingConfig,
    pending: Work,
    work: Callable[[int, Json], Sequence[Draw]],
) -> Rows[Candidate]:
    """Pay a stage that draws candidates of the policy; `work` gives the draws of a chunk."""
    drawing = CandidateDrawing(
        run=it.run, iteration=it.number, policy=it.policy, kind=kind, sampling=sampling
    )
    planned = it.run.run_stage(
        it.number,
        label,
        pending,
        lambda stage: drawing.run_units(stage, lambda unit: work(unit.chunk, unit.key)),
        places=it.run.places.of(it.policy),
    )
    return Rows(row_type=Candidate, stages=(planned,))


def draws(
    it: Iteration,
    identity: Json,
    prompt: Prompt,
    *,
    count: int,
    messages: tuple[Message, ...] | None = None,
    parent_id: str | None = None,
    critique_id: str | None = None,
) -> list[Draw]:
    """Return `count` draws for a conversation: `messages`, by default the prompt's.

    `identity` is the other input of their ids: the key of their unit.
    """

    def drawn(number: int) -> Draw:
        name = row_id("cand", [identity, prompt.prompt_id, parent_id, critique_id, number])
        return Draw(
            candidate_id=name,
            prompt_id=prompt.prompt_id,
            messages=prompt.messages if messages is None else messages,
            seed=derive_seed(it.run.config.seed, "draw", name),
            parent_id=parent_id,
            critique_id=critique_id,
        )

    return [drawn(number) for number in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleRequest(Generic[S, Sent, Answer]):
    """A subject, the request about it, and the answer; it is sent once.

    A failed draw, or a text that is too long, would fail again.
    """

    subject: S
    sent: Sent
    answer: Answer | None = None
    attempts: int = 0

    @property
    def settled(self) -> bool:
        """Whether it was answered."""
        return self.attempts > 0

    def request(self) -> Sent:
        """Return the request."""
        return self.sent

    def after_answer(self, answer: Answer) -> Sequence[Self]:
        """Return it with its answer."""
        return [replace(self, answer=answer, attempts=1)]


Drawing = SingleRequest[Draw, Request, Completion]


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateDrawing:
    """A stage that draws candidates from one policy under one sampling setting.

    `model` is the model's name in its rows; default: the configured policy. With `judge` the budget
    counts its requests as a judge's.
    """

    run: Run
    iteration: int
    policy: Served
    kind: CandidateKind
    sampling: SamplingConfig
    model: str | None = None
    judge: bool = False

    def run_units(self, stage: Stage, work: Callable[[Unit], Sequence[Draw]]) -> None:
        """Draw the pending units of the stage; `work` gives a unit's draws when it begins."""
        sampling = engine_sampling(self.sampling)
        line = EngineClient(
            run=self.run, served=self.policy, first=sampling, again=sampling, judge=self.judge
        )

        ends = Counter[str]()

        def drawing(draw: Draw) -> Drawing:
            messages = add_control(draw.messages, self.policy.control)
            request = Request(request_id=draw.candidate_id, messages=messages, seed=draw.seed)
            return SingleRequest(subject=draw, sent=request)

        def commit(unit: Unit, drawn: Sequence[Drawing], cost: UnitStats) -> None:
            rows = [self._row(d.subject, d.answer) for d in drawn if d.answer is not None]
            ends.update(row.finish_reason for row in rows)
            stage.commit(unit, {Candidate: rows}, replace(cost, rows=len(rows)))

        RequestDispatcher(
            run=self.run,
            line=line,
            work=lambda unit: list(map(drawing, work(unit))),
            commit=commit,
        ).run_units(stage)
        if cut := ends["truncated_thinking"]:
            self.run.reporter.note(
                CUT_IN_THOUGHT.format(cut, ends.total(), self.sampling.max_tokens),
                "warning",
                code="W-TRUNCATED",
                iteration=self.iteration,
                truncated=cut,
                answers=ends.total(),
            )

    def _row(self, draw: Draw, completion: Completion) -> Candidate:
        return Candidate(
            candidate_id=draw.candidate_id,
            prompt_id=draw.prompt_id,
            iteration=self.iteration,
            kind=self.kind,
            parent_id=draw.parent_id,
            critique_id=draw.critique_id,
            policy=self.policy.identity,
            model=self.model or self.run.config.policy.model,
            principle=draw.principle,
            text=storable(completion.text),
            reasoning=storable(completion.reasoning) or None,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            finish_reason=completion.finish_reason,
            logprob=completion.logprob,
            seed=draw.seed,
            sampling=canonical_json(self.sampling.model_dump(mode="json")),
        )
