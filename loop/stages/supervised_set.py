"""People's answers as demonstrations: of supervised fine-tuning, and of a next-token loss.

They are the field `output` of the rows of the prompts' file, as in Alpaca's data, or the answers of
the tiny world's people. Each is committed as an external candidate, from which the demonstration is
made.

The supervised set of a next-token loss (D_S in ChatGLM-RLHF's Eq. 6) contains people's answers to
the prompts of `training.next_token.source`, without those that the run holds out. It belongs to the
run, not to an iteration: it is committed once, and each training learns it in addition to the
iteration's rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from ...configs.schema import ConfigError, PromptsConfig, RunConfig
from ...policies.trainers.job import SupervisedSet
from ...stores.frames import as_arrow, as_frame, rows_frame
from ...stores.journal_reader import Unit
from ...stores.keys import Json, digest
from ...stores.records import (
    Candidate,
    Demonstration,
    FilterCount,
    PairingOutcome,
    Prompt,
    storable,
)
from ...stores.schemas import RowsByType
from ..data.file_row import optional_text
from ..data.files import InputError, RowError, file_digest, placed_rows
from ..data.filter_counts import KEPT, filter_counts, ids_by_fate
from ..data.prompt_rows import to_prompt
from ..data.prompts import SMOL, TINY, load_prompts, notes_of, read_prompts, shape_of
from ..data.row_fields import external_candidate
from ..data.splits import TRAIN, UNTRAINED
from ..data.training_rows import (
    Made,
    Origin,
    Outcome,
    add_empty_ratings,
    demonstration_rows,
    outcome_rows,
)
from ..run.handles import Prompts, Rows, content_key
from ..run.iteration import Iteration
from ..run.run import Run, Verb, Work
from .training_files import rows_file

DEMONSTRATIONS, NEXT_TOKEN = Verb("demonstrations"), Verb("next_token")
PEOPLE = "people"
"""The rule of people's demonstrations, and their author."""
STAGE, RULE = "next-token", "next_token"
UNANSWERED = "no_output"
"""Why a prompt of the source is left out."""

BEFORE = 0
"""The iteration in which the set is committed: before the first one."""


def demonstrations(it: Iteration, prompts: Prompts) -> Rows[Demonstration]:
    """Commit people's answers to the prompts; a prompt without one is left out and counted.

    Raises:
        InputError: if the prompts' file cannot be read.
    """
    answers = answers_of_people(it.run.config.prompts, [p for c in prompts.chunks for p in c])
    answered = [[answers.get(p.prompt_id) for p in chunk] for chunk in prompts.chunks]
    keys = [
        (content_key(chunk), digest(texts))
        for chunk, texts in zip(prompts.chunks, answered, strict=True)
    ]
    work = Work(
        verb=DEMONSTRATIONS,
        params=digest(answered),
        upstream=(prompts.identity,),
        reads=lambda: keys,
    )

    def make(unit: Unit) -> RowsByType:
        chunk = prompts.chunks[unit.chunk]
        written = [
            _answer([PEOPLE, it.number], p, answers[p.prompt_id], it.number)
            for p in chunk
            if p.prompt_id in answers
        ]
        made = make_demonstrations(written, chunk, it.number)
        return {
            Demonstration: as_arrow(made.rows),
            Candidate: written,
            PairingOutcome: as_arrow(made.outcomes),
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
            named = shape.rename_fields(row)
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
    written: Sequence[Candidate], chunk: Sequence[Prompt], iteration: int, rule: str = PEOPLE
) -> Made:
    """Return the demonstrations that answers make, and one yield a prompt."""
    prompts, by = rows_frame(Prompt, chunk), Origin(rule=rule, iteration=iteration)
    rows = demonstration_rows(add_empty_ratings(rows_frame(Candidate, written)), prompts, by)
    done, missing = Outcome.DEMONSTRATED, Outcome.NO_DEMONSTRATION
    return Made(rows, outcome_rows(prompts, rows, by, success=done, otherwise=missing))


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervision:
    """The supervised set of a run, and how much of it a training learns an optimizer step."""

    run: Run
    rows: Rows[Demonstration]

    def add_to(self, work: Work) -> Work:
        """Return the work of a training that learns this set in addition to the rows of `work`."""
        settings = self.run.config.training.next_token
        (stage,) = self.rows.stages
        content = [settings.weight, settings.batch_size, *stage.keys(self.run.store.journal)]
        key = digest(content)
        return replace(
            work,
            upstream=(*work.upstream, key),
            also_on=(*work.also_on, stage.identity),
            reads=lambda: [(*keys, key) for keys in work.reads()],
        )

    def as_job(self, work: Path) -> SupervisedSet:
        """Write the set into one file in a trainer's work folder, and return it as a job takes it.

        The lake's own files of iterations that are over may be packed while the trainer reads.
        """
        settings, store = self.run.config.training.next_token, self.run.store
        (stage,) = self.rows.stages
        keys = stage.keys(store.journal)
        rows = pl.concat(as_frame(store.table(Demonstration, key)) for key in keys)
        file = store.when_there_is_room(lambda: rows_file(work, Demonstration, rows))
        return SupervisedSet(data=(file,), weight=settings.weight, batch_size=settings.batch_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A prompt of the source, people's answer to it if they gave one, and its fate."""

    prompt: Prompt
    text: str | None
    fate: str


def source_of(config: RunConfig) -> str | None:
    """Return the source of the supervised set: a file, or the tiny world; None without one."""
    settings = config.training.next_token
    return settings.source or config.prompts.source if settings.weight else None


def supervised_fingerprint(config: RunConfig) -> Mapping[str, Json]:
    """Return the identity of a run's supervised set, the hash of its source, which must not change.

    Raises:
        InputError: if it cannot be read.
    """
    source = source_of(config)
    if source is None:
        return {}
    return {"next_token": TINY if source == TINY else file_digest(Path(source))}


def require_supervised(config: RunConfig, prompts: Sequence[Prompt]) -> None:
    """Raise InputError if the configured supervised set, if any, holds nothing to learn."""
    if (source := source_of(config)) is not None:
        read_supervised(config.prompts, source, prompts)


def read_supervised(place: PromptsConfig, source: str, prompts: Iterable[Prompt]) -> list[Answered]:
    """Return the prompts of a source with people's answers; `prompts` are the run's own.

    Raises:
        InputError: if the source cannot be read, or nothing of it is left to learn.
    """
    own = list(prompts)
    other = place.model_copy(update={"source": source})
    if source == TINY:
        others = load_prompts(other, seed=0)
    else:
        others = read_prompts(Path(source), task=place.task, run=own)
    answers = answers_of_people(other, others)
    measuring = {p.messages: p.split for p in own if p.split != TRAIN}

    def fate(prompt: Prompt) -> str:
        split = measuring.get(prompt.messages, prompt.split)
        if split != TRAIN:
            return UNTRAINED[split]
        return KEPT if prompt.prompt_id in answers else UNANSWERED

    found = [Answered(prompt=p, text=answers.get(p.prompt_id), fate=fate(p)) for p in others]
    if not any(answered.fate == KEPT for answered in found):
        raise InputError(
            f"{source}: holds no `output` of a prompt to train on; name a file with some "
            "by training.next_token.source, or set training.next_token.weight to 0"
        )
    return found


def supervision(it: Iteration) -> Supervision | None:
    """Commit the supervised set, unless that is done; None if `training.next_token` is off.

    Raises:
        InputError: as `read_supervised`.
    """
    config = it.run.config
    source = source_of(config)
    if source is None:
        return None
    found = read_supervised(config.prompts, source, it.run.prompts.values())
    size = config.prompts.chunk
    chunks = [found[first : first + size] for first in range(0, len(found), size)]
    keys = [
        (content_key([a.prompt for a in chunk]), digest([[a.text, a.fate] for a in chunk]))
        for chunk in chunks
    ]

    def make(unit: Unit) -> RowsByType:
        chunk = chunks[unit.chunk]
        kept = [(a.prompt, a.text) for a in chunk if a.fate == KEPT and a.text is not None]
        prompts = [prompt for prompt, _ in kept]
        written = [_answer([RULE], prompt, text, BEFORE) for prompt, text in kept]
        fates = ids_by_fate([a.prompt for a in chunk], [a.fate for a in chunk])
        return {
            Demonstration: as_arrow(make_demonstrations(written, prompts, BEFORE, RULE).rows),
            Candidate: written,
            Prompt: [prompt for prompt in prompts if prompt.prompt_id not in it.run.prompts],
            FilterCount: filter_counts(BEFORE, STAGE, "prompts", fates),
        }

    work = Work(verb=NEXT_TOKEN, params=None, upstream=(digest(keys),), reads=lambda: keys)
    planned = it.run.make(BEFORE, STAGE, work, make)
    return Supervision(run=it.run, rows=Rows(row_type=Demonstration, stages=(planned,)))


def _answer(named: list[Json], prompt: Prompt, text: str, iteration: int) -> Candidate:
    """Return the row of a person's answer; `named` begins the inputs of its id."""
    return external_candidate(
        [*named, prompt.prompt_id, text],
        prompt_id=prompt.prompt_id,
        text=text,
        source=PEOPLE,
        model=PEOPLE,
        iteration=iteration,
    )
