# pyright: basic
"""Sources of judgments: files in the layouts of `lpfloop import`, and preferences of runs."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from ...configs.own_function import OwnFunction
from ...stores.lake import RunReader, run_names
from ...stores.records import Candidate, Message, Pair, Preference, Prompt
from ...stores.schemas import Row as StoredRow
from ..data.file_row import show_value
from ..data.files import InputError, Row, RowError, placed_rows
from ..data.judged_candidates import LABEL, TRUSTED, last_votes
from ..data.rating_scale import SCALES, THREE_LEVEL, number
from ..lake.imports.compared_rows import PREFERENCE, won_in
from ..lake.imports.import_files import detect_format
from ..lake.imports.import_formats import ANNOTATIONS, rows_in_format
from ..lake.imports.imported_rows import UNKNOWN, Maker
from ..lake.query.runs import open_run
from ..stages.compare import ANNOTATE, COMPARE
from .judgments import JudgedOutput, Judgment

PEOPLE = (*TRUSTED, "author_", "expert_")
"""The prefixes of people's names, and of labels, in a lake and in MT-bench."""
CHOSEN = f"{LABEL}chosen"
"""The annotator of pairs of a chosen and a rejected answer, which nobody else judged."""
TASK = "task"
COIN = "coin"
"""The annotator of verdicts given by simulated noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgmentReading:
    """How judgments are read.

    `human` are prefixes of people's names beyond `PEOPLE`; `by` is the field that names the task
    type, which is `task` for a run's prompts; `layout` is how files are read, instead of the layout
    recognised by their fields.
    """

    human: Sequence[str] = ()
    by: str | None = None
    layout: str | OwnFunction | None = None

    def is_human(self, annotator: str) -> bool:
        """Whether an annotator's name is a person's, or a label's."""
        return annotator.startswith((*PEOPLE, *self.human))


def judgments_of(
    sources: Sequence[str], lake: Path, reading: JudgmentReading
) -> Iterator[Judgment]:
    """Yield the judgments of files and of runs of the lake, in order.

    Raises:
        InputError: if a source is neither, or a row cannot be read.
    """
    runs = set(run_names(lake))
    for source in sources:
        if Path(source).is_file():
            yield from file_judgments(Path(source), reading)
        elif source in runs:
            with closing(open_run(lake, source)) as run:
                yield from _of_run(run, reading)
        else:
            raise InputError(f"{source}: neither a file nor a run of {lake}")


def file_judgments(path: Path, reading: JudgmentReading) -> Iterator[Judgment]:
    """Yield the judgments of a file; rows without one, such as prompts, are passed over.

    Raises:
        InputError: if a row cannot be read.
    """
    layout = reading.layout or detect_format(path)
    if layout == ANNOTATIONS:
        raise InputError(f"{path}: judges candidates of a run: import it, then name the run")
    make = Maker(source=path.stem, scale=SCALES[THREE_LEVEL], task=None)
    for place, row in placed_rows(path):
        try:
            for form, known in rows_in_format(row, layout):
                yield from _of_row(known, form.read(known, make), reading)
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error


def _of_row(row: Row, made: Iterable[StoredRow], reading: JudgmentReading) -> Iterator[Judgment]:
    """Yield the judgments of a row of a file, from the rows that an import would make of it."""
    rows = list(made)
    answers = {one.candidate_id: one for one in rows if isinstance(one, Candidate)}
    prompts = {one.prompt_id: one for one in rows if isinstance(one, Prompt)}
    pair = next((one for one in rows if isinstance(one, Pair)), None)
    task = None if reading.by is None else row.get(reading.by)
    for vote in rows:
        if not isinstance(vote, Preference):
            continue
        annotator, preferred = vote.annotator, vote.preferred
        if pair is not None:
            equal = pair.chosen_reward is not None and pair.chosen_reward == pair.rejected_reward
            annotator, preferred = CHOSEN, "tie" if equal else "first"
        elif preferred is None and number(row.glance(PREFERENCE)) is not None:
            won_in(row)
        messages = prompts[vote.prompt_id].messages
        first, second = (_output(answers[one]) for one in (vote.first_id, vote.second_id))
        yield Judgment(
            messages=messages,
            instruction=_instruction(messages),
            first=first,
            second=second,
            annotator=annotator,
            human=reading.is_human(annotator),
            preferred=preferred,
            shown=vote.order if row.get("order") is not None else None,
            price=_price(row),
            task=None if task is None else str(task),
        )


def _output(answer: Candidate) -> JudgedOutput:
    model = None if answer.model == UNKNOWN else answer.model
    return JudgedOutput(key=answer.text, text=answer.text, model=model)


def _price(row: Row) -> float | None:
    """Return the price of a verdict as recorded by AlpacaEval's annotators."""
    given = row.get("price_per_example")
    if given is None:
        return None
    price = number(given)
    if price is None or price < 0:
        raise RowError(
            f"'price_per_example' must be a number from 0, or null, but is {show_value(given)}"
        )
    return price


def _of_run(run: RunReader, reading: JudgmentReading) -> Iterator[Judgment]:
    """Yield a run's preferences with their texts."""
    texts = run.scan("candidates").unique("candidate_id")
    prompts = run.scan("prompts").select("prompt_id", "messages", "task").unique("prompt_id")
    votes = last_votes(run.scan("preferences"))
    frame = votes.join(prompts, on="prompt_id", how="left", maintain_order="left")
    for side in ("first", "second"):
        named = texts.select(
            pl.col("candidate_id").alias(f"{side}_id"),
            pl.col("text").alias(f"{side}_text"),
            pl.col("model").alias(f"{side}_model"),
        )
        frame = frame.join(named, on=f"{side}_id", how="left", maintain_order="left")
    found = frame.collect()
    prices = _prices(run, found)
    for row in found.iter_rows(named=True):
        judgment = _stored_judgment(row, reading)
        yield replace(judgment, price=prices.get(judgment.annotator))


def _prices(run: RunReader, votes: pl.DataFrame) -> dict[str, float]:
    """Return the mean price of a verdict by each annotator that a run paid.

    The last part of the name of an annotator's stage is the annotator's name.
    """
    paid = dict[str, float]()
    for stage in run.journal.stages():
        verb, annotator = stage.stage.split(":")[0], stage.stage.split(":")[-1]
        if verb in (ANNOTATE.name, COMPARE.name):
            paid[annotator] = paid.get(annotator, 0.0) + stage.totals.get("money", 0.0)
    alike = (pl.col("text") == "") & (pl.col("preferred") == "tie")
    judged = votes.filter(~pl.col("flipped") & ~alike.fill_null(value=False))
    counts = dict(judged.group_by("annotator").len().iter_rows())
    return {name: paid[name] / count for name, count in counts.items() if paid.get(name)}


def _stored_judgment(row: Mapping[str, Any], reading: JudgmentReading) -> Judgment:
    """Return the judgment of a stored preference, with its messages and texts."""
    annotator = COIN if row["flipped"] else row["annotator"]
    human = reading.is_human(annotator)
    messages = tuple(Message(role=m["role"], content=m["content"]) for m in row["messages"] or ())
    first, second = (
        JudgedOutput(
            key=row[f"{side}_text"] or row[f"{side}_id"],
            text=row[f"{side}_text"],
            model=row[f"{side}_model"],
        )
        for side in ("first", "second")
    )
    return Judgment(
        messages=messages,
        instruction=_instruction(messages) if messages else row["prompt_id"],
        first=first,
        second=second,
        annotator=annotator,
        human=human,
        preferred=row["preferred"],
        shown=None if human or row["flipped"] or row["order"] == "both" else row["order"],
        task=row[TASK] if reading.by == TASK else None,
    )


def _instruction(messages: Sequence[Message]) -> str:
    """Return the text of a prompt of one message, else its messages as JSON."""
    if len(messages) == 1:
        return messages[0].content
    return json.dumps([[m.role, m.content] for m in messages], ensure_ascii=False)
