"""Another model's outputs: the reference of a policy's win-rate.

A file has one row a prompt (`instruction` or another field of a prompt, `output`, `generator`), as
AlpacaEval publishes its model outputs; the tiny world writes its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ...configs.annotation import INITIAL
from ...configs.schema import RunConfig
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Message, Prompt
from ...stores.schemas import RowsByType
from ..data.files import InputError, RowError, file_digest, placed_rows
from ..data.prompt_rows import HEADED, Inputs, RowShape, to_prompt
from ..data.prompts import TINY
from ..data.row_fields import external_candidate
from ..data.text_lines import Row
from ..lake.imports.compared_rows import generator_in, output_in
from ..run.handles import Prompts, Rows
from ..run.run import Run, Verb, Work

REFERENCE = "reference"
OUTPUTS = Verb("reference")
UNNAMED = "unnamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceOutput:
    """A reference model's answer, and the model's name."""

    text: str
    generator: str


Outputs = Mapping[tuple[Message, ...], ReferenceOutput]
"""The outputs of a file, by the conversation that they answer."""


def reference_digest(place: str) -> str:
    """Return the identity of the outputs: the hash of their file, the tiny world, or M_0.

    Raises:
        InputError: if the file cannot be read.
    """
    return place if place in (TINY, INITIAL) else file_digest(Path(place))


def reference_fingerprint(config: RunConfig) -> Mapping[str, Json]:
    """Return the identity of a run's reference outputs, which must not change.

    Raises:
        InputError: as `reference_digest`.
    """
    place = config.assessment.reference
    if isinstance(place, dict):
        return {
            REFERENCE: {eval_set: reference_digest(own) for eval_set, own in sorted(place.items())}
        }
    return {} if place is None else {REFERENCE: reference_digest(place)}


def require_outputs(place: str, prompts: Sequence[Prompt]) -> None:
    """Refuse a file without an output for each of these prompts; M_0 answers them all.

    Raises:
        InputError: naming the first that is missing, or another error.
    """
    for prompt in prompts if place != INITIAL else ():
        _output(place, prompt)


def has_outputs(place: str, prompts: Prompts) -> bool:
    """Return whether there is an output for each of these prompts."""
    try:
        require_outputs(place, [prompt for chunk in prompts.chunks for prompt in chunk])
    except InputError:
        return False
    return True


def reference_outputs(run: Run, place: str, prompts: Prompts, name: str) -> Rows[Candidate]:
    """Commit the reference's output to each prompt, once a run; `name` is the prompts' label.

    Raises:
        InputError: if a prompt lacks an output.
    """
    params: Json = {REFERENCE: reference_digest(place)}
    work = Work(verb=OUTPUTS, params=params, upstream=(prompts.identity,), reads=prompts.each_key)

    def make(unit: Unit) -> RowsByType:
        return {Candidate: [_candidate(p, _output(place, p)) for p in prompts.chunks[unit.chunk]]}

    planned = run.make(0, f"{REFERENCE}:{name}", work, make)
    return Rows(row_type=Candidate, stages=(planned,))


def read_outputs(path: Path) -> Outputs:
    """Read a file of a model's outputs.

    Raises:
        InputError: for a file or row that cannot be read.
    """
    found: dict[tuple[Message, ...], ReferenceOutput] = {}
    for place, row in placed_rows(path):
        try:
            # A run may put an instruction and its input together in any of these ways.
            conversations = {_messages(row, path.name, form) for form in HEADED}
            generator = generator_in(row) or UNNAMED
            output = ReferenceOutput(text=output_in(row), generator=generator)
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
        for messages in conversations:
            if found.setdefault(messages, output) != output:
                text = messages[-1].content[:60]
                raise InputError(f"{path}, {place}: a second output to {text!r}; keep one")
    return found


def _messages(row: Row, source: str, form: Inputs) -> tuple[Message, ...]:
    shape = RowShape(input=form)
    return to_prompt(row, task=None, split="held-out", source=source, shape=shape).messages


_read = cache(read_outputs)
"""Cached: outputs are looked up prompt by prompt."""


def _output(place: str, prompt: Prompt) -> ReferenceOutput:
    if place == TINY:
        # Imported here: the tiny world is loaded only when it is used.
        from ..tiny.human import UnknownExerciseError, reference_output

        try:
            return ReferenceOutput(text=reference_output(prompt.instruction), generator=TINY)
        except UnknownExerciseError as error:
            raise InputError(f"assessment.reference {TINY!r}: {error}") from error
    output = _read(Path(place).resolve()).get(prompt.messages)
    if output is None:
        raise InputError(
            f"{place}: lacks an output to the held-out prompt {prompt.instruction[:60]!r}; add it, "
            "or set prompts.max_test to the prompts that it answers"
        )
    return output


def _candidate(prompt: Prompt, output: ReferenceOutput) -> Candidate:
    inputs = {
        "prompt": prompt.prompt_id,
        "source": REFERENCE,
        "model": output.generator,
        "text": output.text,
    }
    return external_candidate(
        inputs,
        prompt_id=prompt.prompt_id,
        text=output.text,
        source=REFERENCE,
        model=output.generator,
    )
