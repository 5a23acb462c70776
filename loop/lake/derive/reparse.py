"""Parsing stored critiques again: the same texts, the present parser, the run's rubric.

The questions are built again, as the run asked them: the parsed result of a reply depends on the
texts that it is about, and in a guarded run on the nonce that follows from them.
No model is called and the run does not change: the result is a derived table of critiques, from
which `lpfloop rebuild-pairs --derived NAME` makes pairs. Critiques that were not a reply of the
feedback model, such as a verifier's verdict or an annotation, are copied unchanged.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from ....configs.load import stored_config
from ....critics import feedback, guard, judge, quoting, reply_schema
from ....critics.feedback import FeedbackCritic
from ....critics.guard import BARE, GuardKey
from ....critics.reply_schema import is_object
from ....critics.status import Status
from ....stores.derived import DerivedError, Draft
from ....stores.frames import frame_rows
from ....stores.journal_reader import Part
from ....stores.keys import Json, digest
from ....stores.lake import RunReader
from ....stores.records import SCORED, Critique, FinishReason, Prompt
from ....stores.sealed import file_sha256
from ....stores.stage_files import require_unaltered
from ...data.judged_candidates import VERIFIED
from ..query.vocabulary import follows
from .derivation import KeptTable, keep
from .stored_blocks import stage_read

DEFAULT_NAME = "reparsed"
PARSER = (feedback, guard, judge, quoting, reply_schema)
"""The modules that decide how a reply is read."""
ROWS_A_BATCH = 20_000
ENDS: Mapping[str, FinishReason] = {
    Status.TRUNCATED: "length",
    Status.OVERLONG: "overlong",
    Status.FAILED: "failed",
}
"""How a reply ended, by its status; the parser needs it in addition to the text."""


COUNTED = ("read", "kept", "unscored_to_scored", "scored_to_unscored", "ratings_changed")
"""How critiques may be read now: again, unchanged, or differently than before."""


def _change(before: Critique, after: Critique) -> Iterator[str]:
    """Yield how a critique is read differently."""
    yield "read"
    was, is_now = before.status == SCORED, after.status == SCORED
    if was != is_now:
        yield "unscored_to_scored" if is_now else "scored_to_unscored"
    elif was and _ratings(before) != _ratings(after):
        yield "ratings_changed"


def reparse(run: RunReader, name: str | None = None) -> KeptTable:
    """Read the stored critiques of a run again, as derived critiques under a name.

    Raises:
        DerivedError: if the run lacks critiques, or the name belongs to another lineage.
    """
    require_unaltered(run.journal)
    parts, judges = run.journal.parts(table="critiques"), _judges(run)
    if not judges or not any(part.rows for part in parts):
        raise DerivedError(
            f"run {run.folder.name} contains no replies of a feedback model to parse again"
        )
    stored = json.loads(run.journal.meta("config") or "{}")
    config = stored_config(stored, (), {}, to_run=False)
    critic = FeedbackCritic.from_config(config.critic)
    seed = config.seed if config.injection_guard else None
    stages = dict.fromkeys((part.iteration, part.stage) for part in parts)
    lineage: dict[str, Json] = {
        "verb": "reparse",
        "run": run.folder.name,
        "table": "critiques",
        "parser": digest([file_sha256(Path(str(part.__file__))) for part in PARSER]),
        "rubric": critic.digest,
        "iterations": list(dict.fromkeys(iteration for iteration, _ in stages)),
        "units": digest([part.unit for part in parts]),
        "reads": [stage_read(run, *stage) for stage in stages],
    }

    def make(draft: Draft) -> Mapping[str, Json]:
        frame = run.scan("prompts").collect(engine="in-memory")
        prompts = {prompt.prompt_id: prompt for prompt in frame_rows(Prompt, frame)}
        changes, statuses = Counter[str](dict.fromkeys(COUNTED, 0)), Counter[str]()
        for some in _batches(parts):
            critiques = run.scan_parts("critiques", some).collect(engine="in-memory")
            answers = _answers(run, critiques)
            shown = {
                row: answers[of] for row, of in critiques["critique_id", "candidate_id"].rows()
            }
            rows = list[Critique]()
            for critique in frame_rows(Critique, critiques):
                if critique.critic not in judges or not critique.attempts:
                    changes["kept"] += 1
                    rows.append(critique)
                    continue
                answer = shown[critique.same_as or critique.critique_id]
                again = _read_again(critic, seed, critique, prompts[critique.prompt_id], answer)
                changes.update(_change(critique, again))
                statuses[again.status] += 1
                rows.append(again)
            draft.add("critiques", rows)
        return {**changes, "statuses": dict(statuses.most_common())}

    return keep(run, name or DEFAULT_NAME, lineage, make)


def _answers(run: RunReader, critiques: pl.DataFrame) -> Mapping[str, str]:
    """Return the texts that critiques are about, by candidate."""
    answered = critiques.select("candidate_id").unique().lazy()
    found = [
        run.scan("candidates", iteration=iteration).join(answered, "candidate_id", "semi")
        for iteration in critiques["iteration"].unique().sort()
    ]
    texts = pl.concat(found).select("candidate_id", "text").collect(engine="in-memory")
    return dict(texts.iter_rows())


def _read_again(
    critic: FeedbackCritic, seed: int | None, critique: Critique, prompt: Prompt, answer: str
) -> Critique:
    """Return a critique as it is read now; `seed` is that of a run with guarded questions."""
    finish = ENDS.get(critique.status, "stop")
    original = critique.same_as or critique.critique_id
    key = BARE
    if seed is not None:
        key = GuardKey.of(seed, original, by_schema=is_object(critique.text))
    (reading,) = critic.ask(prompt, answer, key).read(critique.text, finish)
    verified = tuple(aspect for aspect in critique.aspects if aspect.name == VERIFIED)
    return replace(critique, status=reading.status, aspects=reading.value + verified)


def _judges(run: RunReader) -> frozenset[str]:
    """Return the weights that a run asked for critiques: of the critic, and of its policies."""
    fingerprint = json.loads(run.journal.meta("fingerprint") or "{}")
    critic = fingerprint.get("critic", {}).get("model")
    policy = fingerprint.get("policy", {}).get("model")
    made = run.scan("checkpoints").select("checkpoint_id").collect()["checkpoint_id"]
    own = (policy, *made) if follows(run) else ()
    return frozenset(judge for judge in (critic, *own) if judge is not None)


def _batches(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Yield parts in batches of bounded size; a stage file is read whole, so it is not split."""
    batch, rows = list[Part](), 0
    for part in parts:
        if rows >= ROWS_A_BATCH and (part.file is None or part.file != batch[-1].file):
            yield batch
            batch, rows = [], 0
        batch.append(part)
        rows += part.rows
    if batch:
        yield batch


def _ratings(critique: Critique) -> list[tuple[str, int | None]]:
    return [(aspect.name, aspect.rating) for aspect in critique.aspects]
