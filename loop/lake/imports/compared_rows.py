"""Reading two answers that were compared: AlpacaFarm, AlpacaEval, PandaLM and HelpSteer3."""

from collections.abc import Iterator

from ....stores.records import Candidate, Preferred, Prompt, storable
from ....stores.schemas import Row as StoredRow
from ...data.files import Row, RowError
from ...data.prompt_context import CONTEXT_FIELDS, OTHER_MEDIA
from ...data.rating_scale import number
from ...data.row_fields import (
    LABEL,
    PLAIN_VOTES,
    filed,
    human,
    published_text,
    remark_of,
    vote_of,
)
from ...data.row_texts import optional_text
from .answer_rows import candidates
from .imported_rows import Maker

ASKED = frozenset(
    {
        *("instruction", "prompt_id", "task", "family", "source", "reference", "checks"),
        *CONTEXT_FIELDS,
        *OTHER_MEDIA,
    }
)
"""The fields of the prompt of a row with two answers."""
OVERALL, STRONGEST = "overall_preference", 3
"""HelpSteer3's field with the preference, and its largest number."""
JUDGES = "_result"
"""What the names of the fields with judges' verdicts end with in PandaLM's rows."""


Rows = Iterator[StoredRow]


def alpaca(row: Row, make: Maker) -> Rows:
    """Read AlpacaFarm's and AlpacaEval's rows: two outputs and a preference, or one output."""
    if "output_1" not in row:
        yield from candidates(row, make)
        return
    prompt, first, second = _two(row, make, ("output_1", "output_2"))
    yield from (prompt, first, second)
    given = row.get("preference", row.get("label"))
    said = row.get("raw_completion")
    text = storable(said) if isinstance(said, str) else ""
    if number(given) not in PLAIN_VOTES:
        text = f"{text}\n\n[preference as given: {given}]".strip()
    annotator = optional_text(row, "annotator") or make.source
    yield make.preference(first, second, annotator, vote_of(given), text=text)


def pandalm(row: Row, make: Maker) -> Rows:
    """Read PandaLM's rows: two responses, people's votes and judges' (0 is a tie)."""
    models = str(row.get("cmp_key") or "").split("_")
    sides = ("generator_1", "generator_2")
    named = row.having(dict(zip(sides, models, strict=True)) if len(models) == len(sides) else {})
    prompt, first, second = _two(named, make, ("response1", "response2"))
    yield from (prompt, first, second)
    for name in sorted(n for n in row if n.startswith("annotator")):
        yield make.preference(first, second, human(name), vote_of(row[name]))
    for name in sorted(n for n in row if n.endswith(JUDGES)):
        judge, given = name.removesuffix(JUDGES), row[name]
        tied = isinstance(given, str) and given.lower() == "tie"
        text = remark_of(row, f"{judge}_reason") or ""
        yield make.preference(first, second, judge, "tie" if tied else vote_of(given), text=text)


def helpsteer3(row: Row, make: Maker) -> Rows:
    """Read HelpSteer3's rows: a conversation, two responses, and which is better, from -3 to 3.

    A number below 0 is for the first response.

    Raises:
        RowError: if the preference is not such a number.
    """
    prompt, first, second = _two(row, make, ("response1", "response2"))
    yield from (prompt, first, second)
    given = number(row.get(OVERALL))
    if given is None or abs(given) > STRONGEST:
        raise RowError(f"{OVERALL!r} must be a number from -{STRONGEST} to {STRONGEST}")
    preferred: Preferred = "tie" if given == 0 else "first" if given < 0 else "second"
    text = f"[preference as given: {given:g}]"
    yield make.preference(first, second, f"{LABEL}{OVERALL}", preferred, text=text)


def _two(row: Row, make: Maker, fields: tuple[str, str]) -> tuple[Prompt, Candidate, Candidate]:
    """Return a prompt and its two answers."""
    asked = filed(row)
    if not str(row.get("instruction") or "").strip():
        asked = asked.having({"instruction": row.get("input"), "input": ""})
    prompt = make.prompt(asked.without(asked.keys() - ASKED))
    first, second = (
        make.candidate(
            prompt, published_text(row.get(field), field), optional_text(row, f"generator_{place}")
        )
        for place, field in enumerate(fields, start=1)
    )
    return prompt, first, second
