"""Stand-ins for models, trainers and verifiers in a rehearsal: they answer at once.

Their requests are recorded under the stage that sends them. A stand-in judge replies in the form
that its request demands (`Request.example`), a policy with filler as long as its answers may be, or
as long as the answers of earlier runs in the lake were.
"""

import json
import math
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import polars as pl

from ...configs.schema import EngineConfig, RunConfig
from ...configs.training import OnlineSettings
from ...critics.verify import Verdict, Verifier
from ...policies.engines.canary import write_canary
from ...policies.engines.engine import (
    AnswerLogprob,
    Batch,
    BatchResult,
    Completion,
    Engine,
    Request,
    Sampling,
    ScoreBatch,
    Scorer,
    ScoreRequest,
    ScoreResult,
)
from ...policies.engines.token_count import TURN_TOKENS, TokenCount, about, token_count
from ...policies.trainers.job import ONLINE, TrainJob
from ...policies.trainers.step_files import (
    StepRows,
    candidate_row,
    draws_of_step,
    planned_steps,
    read_prompts,
    write_answers,
    write_step,
)
from ...policies.trainers.step_policies import published_steps, seal_policy, step_job
from ...policies.trainers.train_model import TrainResult
from ...policies.trainers.work_folder import TrainerProgress
from ...stores.durable import make_folder, write_file
from ...stores.journal_file import DamagedJournalError
from ...stores.journal_reader import JournalError, Reader, StageState
from ...stores.lake import run_folder, run_names
from ...stores.records import Candidate, Message, Prompt
from ..run.engine_client import engine_sampling
from ..run.engine_client import letters as letters_of
from ..run.handles import Planned
from ..run.models import ANNOTATION, COMPLETION, NO_MODEL, POLICY, Models, Served, locate_model
from .prompt_sample import PromptGroup

EARLIER = 5
"""How many runs of a lake are searched for the costs of calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCost:
    """The measured cost of a stage's call: mean tokens and letters of an answer.

    `density` is the tokens that a letter of a prompt took, `seconds` wall time of the whole stage a
    call. None is unmeasured.
    """

    tokens: float
    letters: float | None = None
    density: float | None = None
    seconds: float | None = None


CallCosts = Mapping[str, CallCost]
"""By stage, as `status` calls it, without its iteration."""


def costs_in(lake: Path, config: RunConfig) -> CallCosts:
    """Return the costs of calls of each stage in earlier runs of the same models, the latest first.

    A run that cannot be read, as one of an older lpfloop, is skipped.
    """
    found: dict[str, CallCost] = {}
    own = [config.policy.model, config.critic.model]
    for name in reversed(run_names(lake)[-EARLIER:]) if lake.is_dir() else ():
        try:
            reader = Reader(run_folder(lake, name))
        except (JournalError, DamagedJournalError):
            continue
        with closing(reader):
            stored = json.loads(reader.meta("config") or "{}")
            same = [stored.get(role, {}).get("model") for role in ("policy", "critic")] == own
            for state in reversed(reader.stages()) if same else ():
                calls = state.totals.get("calls", 0) or state.totals.get("rows", 0)
                if calls and state.done == state.planned:
                    found.setdefault(state.stage, _cost(state, calls))
    return found


def _cost(state: StageState, calls: float) -> CallCost:
    """Return the mean cost of a call of a stage; a training counts no letters."""
    sums = state.totals
    letters = sums.get("prompt_letters", 0)
    return CallCost(
        tokens=sums.get("tokens", 0) / calls,
        letters=sums["letters"] / calls if "letters" in sums else None,
        density=sums.get("prompt_tokens", 0) / letters if letters else None,
        seconds=state.seconds / calls,
    )


LETTERS_A_TOKEN = 4
"""English prose: assumed for models whose tokenizer is not on this machine."""
SHOWN = 8
"""Requests of a stage that are kept, to be looked at."""
JUDGED = "critique:sample"
"""The stage from which the length of critiques of a training's samples is taken."""
LONGEST_REPLY = 1 << 20
LONGEST_REASON = 32 * 1024
"""Letters; longer replies are not read (`MAX_REPLY`)."""
OPENINGS = ("Surely", "Perhaps", "Indeed", "Briefly", "Clearly", "Well", "Yes", "No")
NOTHING = StepRows(candidates=(), rewards=(), rollouts=(), statistics=())
NO_PROMPTS = PromptGroup(name="none", total=0, sample=())
ROLE = "rehearsed as "
"""How the identity of a placeholder for a model begins; a trained policy has its own."""
FILLER = ("so", "the", "answer", "goes", "on", "in", "plain", "words", "and", "then")


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that a stage sends, its sampling settings, and the placeholder for its reply."""

    request: Request
    sampling: Sampling
    reply: str


@dataclass(kw_only=True)
class ModelCalls:
    """A stage's requests to one model: `calls` in all, their tokens, the first few as they are.

    If a stage both samples and judges, a model that does both is called twice: `judges` marks
    which.
    """

    served: Served
    judges: bool = False
    calls: int = 0
    prompt_tokens: int = 0
    tokens: float = 0.0
    most_tokens: int = 0
    measured: bool = False
    sent: list[Sent] = field(default_factory=list[Sent])


@dataclass(kw_only=True)
class RehearsedStage:
    """The work of a stage: its units, calls, scored conversations, and training.

    `group` are the prompts that it works on; `by_chunk`: it has a unit for each chunk of them.
    """

    iteration: int
    stage: str
    judge: bool = False
    group: PromptGroup = NO_PROMPTS
    by_chunk: bool = False
    planned: Planned | None = None
    units: int = 0
    calls: dict[str, ModelCalls] = field(default_factory=dict[str, ModelCalls])
    scored: int = 0
    first_scored: ScoreRequest | None = None
    job: TrainJob | None = None
    row: Mapping[str, Any] | None = None
    rows: int = 0


@dataclass(kw_only=True)
class Notes:
    """The notes of a rehearsal, stage by stage; replies have `longest` letters at most.

    A trained model has the tokenizer of the `policy` with which the run begins.
    """

    costs: CallCosts
    policy: str
    longest: int = LONGEST_REPLY
    stages: list[RehearsedStage] = field(default_factory=list[RehearsedStage])

    @property
    def now(self) -> RehearsedStage:
        """The notes of the stage that is at work."""
        return self.stages[-1]

    def measured_cost(self, *, judges: bool = False) -> CallCost | None:
        """The measured cost of a call of the present stage, or of a like stage.

        In a training that samples and `judges`, the cost of a judging call.
        """
        verb = self.now.stage.partition(":")[0]
        names = (self.now.stage, verb, *(() if self.now.judge else ("sample",)))
        names = (self.now.stage, JUDGED) if judges else names
        return next((self.costs[name] for name in names if name in self.costs), None)

    def answer(self, served: Served, request: Request, sampling: Sampling) -> Completion:
        """Record a request, and return a placeholder for its completion."""
        now = self.now
        judges = request.example is not None and now.stage in ONLINE
        name = f"{served.name}, judging" if judges else served.name
        calls = now.calls.setdefault(name, ModelCalls(served=served, judges=judges))
        known = self.measured_cost(judges=judges)
        tokens = sampling.max_tokens if known is None else min(known.tokens, sampling.max_tokens)
        measured = None if known is None else known.letters
        letters = LETTERS_A_TOKEN * tokens if measured is None else measured
        reply = _reply(request, min(round(letters), self.longest))
        prompt_tokens = self._prompt_tokens(served, request, known)
        calls.calls += 1
        calls.prompt_tokens += prompt_tokens
        calls.tokens += tokens
        calls.measured = known is not None
        calls.most_tokens += sampling.max_tokens
        if len(calls.sent) < SHOWN:
            calls.sent.append(Sent(request, sampling, reply))
        return Completion(
            request_id=request.request_id,
            text=reply,
            prompt_tokens=prompt_tokens,
            completion_tokens=round(tokens),
            finish_reason="stop",
            logprob=-1.0,
        )

    def _prompt_tokens(self, served: Served, request: Request, known: CallCost | None) -> int:
        """Count a request's tokens by the model's own tokenizer, if it is on this machine."""
        count = _counter(served.location if served.canary is None else self.policy)
        if count is None and known is not None and known.density is not None:
            return round(known.density * letters_of(request))
        size = count or _about
        return sum(size(message.content) + TURN_TOKENS // 2 for message in request.messages)


@lru_cache(maxsize=16)
def _counter(place: str) -> TokenCount | None:
    count = token_count(place)
    return None if count is about else lru_cache(4096)(count)


def _about(text: str) -> int:
    return math.ceil(len(text.encode("utf-8", "surrogatepass")) / LETTERS_A_TOKEN)


def _reply(request: Request, letters: int) -> str:
    """Return a reply of about so many letters, or as long as a judge's must be."""
    if request.example is None:
        opening = OPENINGS[request.seed % len(OPENINGS)]
        return _fill(f"{opening}, number {request.seed % 9973}:", letters)
    bare = request.example(request.seed, "Seen.")
    return request.example(request.seed, _fill("Seen:", min(letters - len(bare), LONGEST_REASON)))


@lru_cache(maxsize=4096)
def _fill(opening: str, letters: int) -> str:
    """Return whole words, different ones after different openings, of about so many letters."""
    words, size = [opening], len(opening)
    draw = random.Random(opening)
    for word in islice(cycle(draw.sample(FILLER, len(FILLER))), max(0, letters)):
        size += 1 + len(word)
        if size >= letters:
            break
        words.append(word)
    return f"{' '.join(words)}."


def placeholder(role: str, model: str, engine: EngineConfig) -> Served:
    """Return the scripted function that replaces the model in a role."""
    name = engine.model_name or model
    return Served(
        name=name,
        identity=f"{ROLE}{role}, {model} {name}",
        location=locate_model(model),
        engine=engine,
    )


def role_of(served: Served) -> str:
    """Return the role of a model as verbs name it; a trained policy plays M_0's.

    All annotators have one role, and so have the models of a pool.
    """
    if not served.identity.startswith(ROLE):
        return POLICY
    role = served.identity.removeprefix(ROLE).partition(",")[0]
    return next((r for r in (ANNOTATION, COMPLETION) if role.startswith(r)), role)


@dataclass(frozen=True, kw_only=True)
class StandInEngine:
    """An engine that answers at once, by no model."""

    served: Served
    notes: Notes

    def generate(self, batches: Iterable[Batch]) -> Iterator[BatchResult]:
        """Answer every request of `batches`, batch after batch."""
        for batch in batches:
            completions = tuple(
                self.notes.answer(self.served, request, batch.sampling)
                for request in batch.requests
            )
            yield BatchResult(key=batch.key, answers=completions)

    def logprobs(self, conversations: Sequence[tuple[Message, ...]]) -> list[AnswerLogprob | None]:
        """Return a number for each."""
        return [AnswerLogprob(logprob=-1.0, tokens=1)] * len(conversations)

    def configure(self, config: EngineConfig) -> None:
        """Do nothing: a stand-in lacks settings."""

    def close(self) -> None:
        """Do nothing: a stand-in holds no resources."""


@dataclass(frozen=True, kw_only=True)
class StandInScorer:
    """A reward model that gives different conversations different rewards."""

    notes: Notes

    def score(self, batches: Iterable[ScoreBatch]) -> Iterator[ScoreResult]:
        """Score every batch."""
        for batch in batches:
            now = self.notes.now
            now.scored += len(batch.requests)
            now.first_scored = now.first_scored or batch.requests[0]
            yield ScoreResult(key=batch.key, answers=tuple(map(_score, batch.requests)))

    def close(self) -> None:
        """Do nothing: a stand-in holds no resources."""


def _score(request: ScoreRequest) -> float:
    text = request.messages[-1].content.encode("utf-8", "surrogatepass")
    return random.Random(zlib.crc32(text)).uniform(-2.0, 2.0)


@dataclass(kw_only=True)
class StandInModels(Models):
    """A run's models, none of which is opened.

    A role without a model is called, too: the caller that opened the run may refuse it then.
    """

    notes: Notes

    def judge(self, role: str) -> Served:
        """Return the placeholder in a role."""
        return self.judging.get(role) or placeholder(role, NO_MODEL, EngineConfig())

    def engine(self, served: Served) -> Engine:
        """Return an engine that answers in the model's place."""
        return StandInEngine(served=served, notes=self.notes)

    def scorer(self, folder: Path | None = None) -> Scorer:
        """Return a scorer that answers in the reward model's place."""
        del folder
        return StandInScorer(notes=self.notes)


RIGHT, WRONG = Verdict((), 1, "right"), Verdict((), -1, "wrong")
"""They take turns, so that each prompt with two answers has one of either."""


class StandInVerifier(Verifier):
    """A verifier that finds some answers right and others wrong, without comparing."""

    def verify(self, items: Sequence[tuple[Prompt, str]]) -> list[Verdict]:
        """Return a verdict on each (prompt, answer)."""
        return self.check(items)

    def check(self, items: Sequence[tuple[Prompt, str]]) -> list[Verdict]:
        """Return a verdict on each (prompt, answer)."""
        return [RIGHT if place % 2 else WRONG for place in range(len(items))]


@dataclass(frozen=True, kw_only=True)
class StandInTrainer:
    """A trainer that leaves a placeholder folder for each model; `policy` samples for it."""

    notes: Notes
    policy: Served

    def __call__(
        self,
        job: TrainJob,
        *,
        on_progress: Callable[[TrainerProgress], None] | None = None,
        on_answers: Callable[[int], None] | None = None,
        **_: object,
    ) -> TrainResult:
        """Record the job and its samples, have them judged, and return a placeholder model."""
        now, frame = self.notes.now, rows_of(job)
        rows = frame.select(pl.len()).collect().item()
        now.job, now.rows = job, rows
        now.row = next(frame.head(1).collect().iter_rows(named=True), None)
        steps = _steps(job, rows, on_progress)
        samples = job.online is not None and job.method == self.notes.now.stage
        answers = self._sampled(job) if samples else []
        if on_answers is not None:
            write_answers(job.output, 1, answers)
            on_answers(1)
        model = make_folder(job.folder("model"))
        write_file(model / "config.json", f'{{"stands_in_for": "{job.output.name}"}}'.encode())
        write_canary(job.output, ())
        for step in published_steps(job.settings, steps):
            part = step_job(job, step)
            between = make_folder(part.folder("model"))
            write_file(between / "config.json", f'{{"stands_in_for": "{step}"}}'.encode())
            write_canary(part.output, ())
            seal_policy(part)
        return TrainResult(output=model, steps=steps, metrics={}, seconds=0.0, history=())

    def _sampled(self, job: TrainJob) -> list[Candidate]:
        """Return a placeholder answer to each prompt, as if all were of the first step."""
        assert job.online is not None  # noqa: S101 -- only online methods sample
        sampling = engine_sampling(job.online.sampling)
        answers = list[Candidate]()
        for one in draws_of_step(job.online, 1, read_prompts(job.data)):
            request = Request(
                request_id=one.candidate_id, messages=one.prompt.messages, seed=one.seed
            )
            completion = self.notes.answer(self.policy, request, sampling)
            answers.append(candidate_row(job.online, one, completion))
        return answers


def rows_of(job: TrainJob) -> pl.LazyFrame:
    """Return the rows of a job, which this process has just written."""
    return pl.concat(pl.scan_parquet(path) for path in job.data)


def _steps(job: TrainJob, rows: int, on_progress: Callable[[TrainerProgress], None] | None) -> int:
    """Return a training's steps; leave the files of an online method, which are read, empty."""
    if not isinstance(job.settings, OnlineSettings):
        return 1
    steps = planned_steps(rows, job.settings)
    if on_progress is None:
        return steps
    for step in range(1, steps + 1):
        write_step(job.output, step, NOTHING)
        on_progress(TrainerProgress(step=step, max_steps=steps, metrics={}))
    return steps
