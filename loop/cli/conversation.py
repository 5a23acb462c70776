"""A conversation with a model on the terminal, or line by line through a pipe.

The same conversation gets the same answers: an answer's seed is that of its place.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

import typer

from ...configs.schema import EngineConfig, RunConfig
from ...configs.section import single_place
from ...policies.engines.engine import (
    Batch,
    Completion,
    Engine,
    EngineError,
    Request,
    Sampling,
)
from ...policies.engines.vllm_engine import refuse_vllm
from ...policies.workers.open import open_engine
from ...stores.keys import derive_seed
from ...stores.lake import RunReader
from ...stores.records import Checkpoint, Message, storable
from ..data.sanitize import visible
from ..lake.trace.published_model import configuration, verified_model
from ..run.conditioning import conditioned, control_of
from ..run.lines import engine_sampling
from ..run.models import is_endpoint, located
from ..run.terminal import say

PROMPT = "> "
RESET, SYSTEM, QUIT, HELP = "/reset", "/system", "/quit", "/help"
COMMANDS = (
    f"{RESET} forgets what was said, {SYSTEM} TEXT sets the system message, {QUIT} or Ctrl-D ends"
)


@dataclass(kw_only=True)
class Conversation:
    """What was said so far, and the model that answers; `control` stands before the user's text."""

    engine: Engine
    sampling: Sampling
    control: str = ""
    system: str = ""
    turns: list[Message] = field(default_factory=list[Message])

    def answer(self, text: str) -> Completion:
        """Return the model's answer to what the user says next; both are remembered if it spoke."""
        asked = Message(role="user", content=storable(text))
        before = [Message(role="system", content=self.system)] if self.system else []
        messages = conditioned((*before, *self.turns, asked), self.control)
        name = f"chat-{len(self.turns)}"
        request = Request(request_id=name, messages=messages, seed=derive_seed(0, name))
        batch = Batch(key=name, requests=(request,), sampling=self.sampling)
        ((said,),) = [result.completions for result in self.engine.generate([batch])]
        if said.text.strip():
            self.turns += [asked, Message(role="assistant", content=said.text)]
        return said

    def reset(self) -> None:
        """Forget all turns; the system message stays."""
        self.turns.clear()


def converse(
    talk: Conversation,
    typed: Iterator[str],
    show: Callable[[str], None],
    note: Callable[[str], None],
) -> None:
    """Answer line after line; `show` takes answers, `note` what is no answer."""
    for line in typed:
        word, _, rest = line.strip().partition(" ")
        match word:
            case "":
                continue
            case "/quit":
                return
            case "/reset":
                talk.reset()
                note("forgotten: the next line begins a new conversation")
            case "/system":
                talk.system = storable(rest.strip())
                note("the system message is set" if talk.system else "no system message any more")
            case _ if word.startswith("/"):
                note(COMMANDS if word == HELP else f"{word} is no command here: {COMMANDS}")
            case _:
                _told(talk, talk.answer(line), show, note)


def _told(
    talk: Conversation,
    said: Completion,
    show: Callable[[str], None],
    note: Callable[[str], None],
) -> None:
    """Show an answer, or why there is none."""
    match said.finish_reason:
        case "overlong":
            note(f"the conversation no longer fits the model's context: {RESET} forgets it")
        case "failed":
            note(f"no answer: {said.error}")
        case reason:
            show(said.text)
            if reason == "truncated_thinking":
                note(f"cut inside its thought, after {talk.sampling.max_tokens} tokens")
            elif not said.text.strip():
                note("the model ended without a word")
            elif reason == "length":
                note(f"cut after {talk.sampling.max_tokens} tokens (policy.sampling.max_tokens)")


def typed_lines() -> Iterator[str]:
    """Yield what is typed, with a prompt on a terminal; the lines of a pipe elsewhere."""
    if not sys.stdin.isatty():
        yield from (line.rstrip("\r\n") for line in sys.stdin)
        return
    import_module("readline")  # lets `input` edit and remember lines

    while True:
        try:
            yield input(PROMPT)
        except EOFError:
            return


def talk_to(run: RunReader, checkpoint: Checkpoint, temperature: float | None) -> None:
    """Talk to a model of a run until the user ends it, sampled as the run samples its policy.

    Raises:
        DamagedError: if the model is damaged.
        EngineError: if it cannot be loaded, or its endpoint does not answer.
        NoSuchRunError: if its weights are not here.
    """
    config = configuration(run)
    place, engine, how = _opening(run, checkpoint, config)
    say(f"{checkpoint.name} of run {run.folder.name}, by {how}; {COMMANDS}")
    with tempfile.TemporaryDirectory() as folder:
        opened = open_engine(place, engine, log=Path(folder) / "engine.log")
        try:
            talk = Conversation(
                engine=opened,
                sampling=engine_sampling(config.policy.sampling, temperature=temperature),
                control=control_of(config, checkpoint),
            )
            converse(talk, typed_lines(), lambda text: typer.echo(visible(text)), say)
        except KeyboardInterrupt:
            say("ended")
        finally:
            opened.close()


def _opening(
    run: RunReader, checkpoint: Checkpoint, config: RunConfig
) -> tuple[str, EngineConfig, str]:
    """Return the folder or URL of a model, its engine, and what to say of that."""
    # Whoever talks asks one thing at a time.
    one = {"replicas": 1, "place": single_place(config.policy.engine.place)}
    engine = config.policy.engine.model_copy(update=one)
    if checkpoint.parent_id is None and is_endpoint(located(checkpoint.path)):
        return located(checkpoint.path), engine, "its endpoint"
    if engine.kind == "scripted":
        return located(checkpoint.path), engine, "its script"
    place = str(verified_model(run, checkpoint))
    if engine.tensor_parallel > 1 or not _suits_transformers(engine):
        return place, engine, "vLLM, as the run is configured for it"
    faster = engine.model_copy(update={"kind": "transformers"})
    return place, faster, "transformers, which starts faster than vLLM"


def _suits_transformers(engine: EngineConfig) -> bool:
    try:
        refuse_vllm(engine, "transformers")
    except EngineError:
        return False
    return True
