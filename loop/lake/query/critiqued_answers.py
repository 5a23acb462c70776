"""The critiques of a file's answers, in the order of its rows: lines for people or programs."""

import json
from collections.abc import Iterator

from ....stores.frames import frame_rows
from ....stores.lake import RunReader
from ....stores.records import SCORED, Critique
from ...data.judged_candidates import is_trusted
from ...data.text import visible

PARTS = 256
INDENT = "    "


def critiques_in_order(run: RunReader) -> Iterator[Critique]:
    """Yield the critic's critiques of a run in the order of their answers in the file."""
    parts = run.journal.parts(table="critiques")
    for first in range(0, len(parts), PARTS):
        frame = run.scan_parts("critiques", parts[first : first + PARTS])
        frame = frame.filter(~is_trusted("critic"))
        yield from frame_rows(Critique, frame.collect(engine="in-memory"))


def as_json_line(critique: Critique) -> str:
    """Return one JSON object; `id` is the id of the row."""
    return json.dumps(
        {
            "id": critique.prompt_id,
            "status": critique.status,
            "ratings": {aspect.name: aspect.rating for aspect in critique.aspects},
            "comments": {aspect.name: aspect.comment for aspect in critique.aspects},
            "text": critique.text,
            "attempts": critique.attempts,
            "critic": critique.critic,
            "reference_used": critique.reference_used,
            "critique_id": critique.critique_id,
            "candidate_id": critique.candidate_id,
        }
    )


def as_text(critique: Critique, width: int) -> str:
    """Return the row's id, status and ratings, and below the first line of the reason."""
    rated = [f"{aspect.name} {aspect.rating}" for aspect in critique.aspects]
    ratings = rated if critique.status == SCORED else ["no rating"]
    first = f"{critique.prompt_id}: {', '.join([critique.status, *ratings])}"
    lines = [first, *(f"{INDENT}{line}" for line in _reason(critique))]
    return "\n".join(_cut(line, width) for line in lines)


def _reason(critique: Critique) -> list[str]:
    """Return the first line of the critique's text, if it has one."""
    texts = (*(aspect.comment for aspect in critique.aspects), critique.text)
    return [line.strip() for text in texts for line in text.splitlines() if line.strip()][:1]


def _cut(text: str, width: int) -> str:
    shown = visible(text.replace("\n", " "))
    return shown if len(shown) <= width else f"{shown[: width - 1]}…"
