"""Sampling y_i ~ pi(x), and other draws from a policy, as requests and as rows."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, Self, TypeVar

from ...configs.load import semantic
from ...configs.recipes import Annotated
from ...configs.schema import SamplingConfig
from ...policies.engines.engine import Completion, Request
from ...stores.journal_reader import Unit
from ...stores.keys import Json, canonical_json, derive_seed, row_id
from ...stores.records import Candidate, CandidateKind, Message, Prompt, storable
from ..run.engine_client import EngineClient, engine_sampling
from ..run.handles import Prompts, Rows
from ..run.iteration import Iteration, add_control
from ..run.models import Served
from ..run.reporter import UnitStats
from ..run.request_dispatcher import RequestDispatcher
from ..run.run import Run, Verb, Work
from ..run.stage import Stage

S = TypeVar("S")
Sent = TypeVar("Sent")
Answer = TypeVar("Answer")

SAMPLE = Verb("sample")
CUT_IN_THOUGHT = (
    "{} of {} answers were cut inside their thought and are not used: raise max_tokens ({}) of "
    "their sampling, or set engine.chat_template_kwargs so that the model thinks less"
)

CUT_OFF = (
    "{} of {} answers were cut off at max_tokens ({}): no pair or demonstration is made of them; "
    "raise max_tokens of their sampling"
)
MOST_CUT, FEW_ANSWERS = 0.2, 20
"""The share of answers to learn from that may be cut off, and too few answers for a warning."""


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
    params: dict[str, Json] = {"policy": it.policy.params, "sampling": semantic(config), "n": n}
    if purpose is not None:
        params["for"] = purpose
    return answers(it, prompts, label, "sample", config, params, n=n)


def answers(
    it: Iteration,
    prompts: Prompts,
    label: str,
    kind: CandidateKind,
    sampling: SamplingConfig,
    params: Json,
    *,
    n: int = 1,
) -> Rows[Candidate]:
    """Draw n answers of the policy to each prompt; `params` is all that they depend on."""

    def work(unit: Unit) -> list[Draw]:
        chunk = prompts.chunks[unit.chunk]
        return [draw for prompt in chunk for draw in draws(it, unit.key, prompt, count=n)]

    pending = Work(verb=SAMPLE, params=params, upstream=(prompts.identity,), reads=prompts.each_key)
    return draw_candidates(it, label, kind, sampling, pending, work)


def narrower(top_p: float) -> float | None:
    """Return the nucleus mass that replaces the policy's; None to keep the policy's."""
    return top_p if top_p < 1 else None


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


class DrawnBy(NamedTuple):
    """A model that draws candidates, and its name in the rows.

    With `judge` the budget counts its requests as a judge's.
    """

    served: Served
    model: str
    judge: bool = False


def draw_candidates(
    it: Iteration,
    label: str,
    kind: CandidateKind,
    sampling: SamplingConfig,
    pending: Work,
    work: Callable[[Unit], Sequence[Draw]],
    by: DrawnBy | None = None,
) -> Rows[Candidate]:
    """Run a stage that draws candidates; `work` gives the draws of a unit when it begins.

    They are drawn by the policy, or by another model.
    """
    run = it.run
    served, model, judge = by or DrawnBy(it.policy, run.config.policy.model)

    def drawing(draw: Draw) -> Drawing:
        messages = add_control(draw.messages, served.control)
        request = Request(request_id=draw.candidate_id, messages=messages, seed=draw.seed)
        return SingleRequest(subject=draw, sent=request)

    def row(draw: Draw, completion: Completion) -> Candidate:
        return Candidate(
            candidate_id=draw.candidate_id,
            prompt_id=draw.prompt_id,
            iteration=it.number,
            kind=kind,
            parent_id=draw.parent_id,
            critique_id=draw.critique_id,
            policy=served.identity,
            model=model,
            principle=draw.principle,
            text=storable(completion.text),
            reasoning=storable(completion.reasoning) or None,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            finish_reason=completion.finish_reason,
            logprob=completion.logprob,
            seed=draw.seed,
            sampling=canonical_json(sampling.model_dump(mode="json")),
        )

    def run_units(stage: Stage) -> None:
        ends, settings = Counter[str](), engine_sampling(sampling)

        def commit(unit: Unit, drawn: Sequence[Drawing], cost: UnitStats) -> None:
            rows = [row(d.subject, d.answer) for d in drawn if d.answer is not None]
            ends.update(row.finish_reason for row in rows)
            stage.commit(unit, {Candidate: rows}, replace(cost, rows=len(rows)))

        client = EngineClient(run=run, served=served, first=settings, again=settings, judge=judge)
        RequestDispatcher(
            run,
            stage,
            client=client,
            work=lambda unit: list(map(drawing, work(unit))),
            commit=commit,
        ).run_units()
        answers, message, cut = ends.total(), CUT_IN_THOUGHT, ends["truncated_thinking"]
        many = answers >= FEW_ANSWERS and ends["length"] > MOST_CUT * answers
        if not cut and many and _leaves_out_cut(run, kind):
            message, cut = CUT_OFF, ends["length"]
        if cut:
            run.reporter.note(
                message.format(cut, answers, sampling.max_tokens),
                "warning",
                code="W-TRUNCATED",
                iteration=it.number,
                truncated=cut,
                answers=answers,
            )

    places = run.places.of(served)
    planned = run.run_stage(it.number, label, pending, run_units, places=places, judge=judge)
    return Rows(row_type=Candidate, stages=(planned,))


def _leaves_out_cut(run: Run, kind: CandidateKind) -> bool:
    """Whether the recipe learns from answers of this kind, but not if they were cut off."""
    compared = isinstance(run.config.recipe, Annotated)
    how = (run.config.annotation if compared else run.config.pairs).cut_answers
    return kind in ("sample", "refinement") and how == "left_out"
