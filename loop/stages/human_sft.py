"""People's answers: the demonstrations of supervised fine-tuning.

They are the field `output` of the rows of the prompts' file, as in Alpaca's data, or the answers of
the tiny world's people. Each is committed as an external candidate, from which the demonstration is
made.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...configs.schema import ConfigError, PromptsConfig
from ...stores.frames import as_arrow, rows_frame
from ...stores.journal_reader import Unit
from ...stores.keys import digest
from ...stores.records import Candidate, Demonstration, PairingOutcome, Prompt, storable
from ...stores.schemas import RowsByType
from ..data.external_candidate import external_candidate
from ..data.files import RowError, placed_rows
from ..data.prompt_rows import to_prompt
from ..data.prompts import SMOL, TINY, notes_of, shape_of
from ..data.row_texts import optional_text
from ..data.training_rows import (
    Made,
    Origin,
    Outcome,
    add_empty_ratings,
    demonstration_rows,
    yield_rows,
)
from ..run.handles import Prompts, Rows, content_key
from ..run.iteration import Iteration
from ..run.run import Verb, Work

DEMONSTRATIONS = Verb("demonstrations")
PEOPLE = "people"
"""The rule of these demonstrations, and their author."""


def demonstrations(it: Iteration, prompts: Prompts) -> Rows[Demonstration]:
    """Commit people's answers to the prompts; a prompt without one is left out and counted.

    Raises:
        InputError: if the prompts' file cannot be read.
    """
    answers = answers_of_people(it.run.config.prompts, [p for c in prompts.chunks for p in c])
    told = [[answers.get(p.prompt_id) for p in chunk] for chunk in prompts.chunks]
    work = Work(
        verb=DEMONSTRATIONS,
        params=digest(told),
        upstream=(prompts.identity,),
        reads=lambda: [
            (content_key(chunk), digest(texts))
            for chunk, texts in zip(prompts.chunks, told, strict=True)
        ],
    )

    def make(unit: Unit) -> RowsByType:
        asked = prompts.chunks[unit.chunk]
        written = [
            _candidate(p, answers[p.prompt_id], it.number) for p in asked if p.prompt_id in answers
        ]
        made = make_demonstrations(written, asked, it.number)
        return {
            Demonstration: as_arrow(made.rows),
            Candidate: written,
            PairingOutcome: as_arrow(made.yields),
        }

    return it.rows(Demonstration, "demonstrations", work, make)


def answers_of_people(config: PromptsConfig, prompts: Sequence[Prompt]) -> Mapping[str, str]:
    """Return people's answers to these prompts, by prompt id; of several answers, the first.

    Raises:
        ConfigError: if the source of prompts cannot have answers by people.
        InputError: if the prompts' file cannot be read.
    """
    if config.source == SMOL:
        raise ConfigError(
            "prompts.source=smol lacks answers of people: name a file of prompts with `output`"
        )
    if config.source == TINY:
        # Imported here: only runs in the tiny world need it.
        from ..tiny.human import demonstration_of

        return {p.prompt_id: demonstration_of(p.instruction) for p in prompts}
    return read_outputs(Path(config.source), config)


def read_outputs(path: Path, config: PromptsConfig) -> dict[str, str]:
    """Return the field `output` of the rows of a prompts' file, by prompt id.

    Raises:
        InputError: for anything that cannot be read as meant.
    """
    found = dict[str, str]()
    shape, notes = shape_of(config), notes_of(config)
    for place, row in placed_rows(path, notes.bad):
        try:
            named = shape.named(row)
            prompt = to_prompt(
                named, task=config.task, split="train", source=path.name, shape=shape
            )
            # Alpaca's own data has a few rows whose output is empty.
            output = optional_text(row, "output") if row.get("output") != "" else None
        except RowError as error:
            notes.bad(path, place, error)
            continue
        if output is not None:
            found.setdefault(prompt.prompt_id, storable(output))
    return found


def make_demonstrations(
    written: Sequence[Candidate], asked: Sequence[Prompt], iteration: int
) -> Made:
    """Return the demonstrations that answers make, and one yield a prompt."""
    prompts, by = rows_frame(Prompt, asked), Origin(rule=PEOPLE, iteration=iteration)
    rows = demonstration_rows(add_empty_ratings(rows_frame(Candidate, written)), prompts, by)
    done, missing = Outcome.DEMONSTRATED, Outcome.NO_DEMONSTRATION
    return Made(rows, yield_rows(prompts, rows, by, success=done, otherwise=missing))


def _candidate(prompt: Prompt, text: str, iteration: int) -> Candidate:
    inputs = [PEOPLE, iteration, prompt.prompt_id, text]
    return external_candidate(
        inputs,
        prompt_id=prompt.prompt_id,
        text=text,
        source=PEOPLE,
        model=PEOPLE,
        iteration=iteration,
    )
