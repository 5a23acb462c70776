# pyright: basic
"""Train prompts that share text with measured prompts, such as a benchmark's.

Each measured prompt is searched by its n-grams: 13 words, or 8 if it has fewer than 26. Its answers
are ignored. An n-gram that many prompts of one benchmark, or of one family, have is their template
and does not count.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ...configs.judging import RuleFilters
from ...stores.keys import Json, digest
from ...stores.records import Prompt
from .contamination import FEWEST, LONG_GRAM, SHORT_GRAM, TEMPLATE, grams, is_long
from .conversations import NoUserTurnError
from .files import InputError, RowError, file_digest, placed_rows
from .prompt_rows import RowShape, to_prompt
from .splits import TRAIN

AT_ONCE = 16_384
"""Train prompts whose n-grams are in memory at once."""
SYSTEM = "system"
FIRST = RowShape(turns="first")
_FOUND = {"row": pl.UInt32, "test": pl.UInt32, "share": pl.Float64}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkFile:
    """A file whose prompts must not be trained on: its name, its hash and its prompts' texts."""

    name: str
    digest: str
    texts: tuple[str, ...]

    @classmethod
    def of(cls, config: RuleFilters) -> "tuple[BenchmarkFile, ...]":
        """Read the files that a configuration names.

        Raises:
            InputError: for a file that cannot be read, or that holds no prompts.
        """
        paths = [Path(place) for place in config.benchmarks]
        names = [path.name for path in paths]
        return tuple(
            cls(
                name=path.name if names.count(path.name) == 1 else str(path),
                digest=file_digest(path),
                texts=tuple(_texts(path)),
            )
            for path in paths
        )


def _texts(path: Path) -> Iterator[str]:
    """Yield each row's question, of a conversation its first turn.

    Raises:
        InputError: for a row that is not a prompt.
    """
    for place, row in placed_rows(path):
        try:
            prompt = to_prompt(row, task=None, split=TRAIN, source=path.name, shape=FIRST)
        except NoUserTurnError:
            continue
        except RowError as error:
            raise InputError(f"prompts.rules.benchmarks: {path}, {place}: {error}") from error
        yield question_text(prompt)


def question_text(prompt: Prompt) -> str:
    """Return the text of a prompt without its system message."""
    return "\n".join(m.content for m in prompt.messages if m.role != SYSTEM).strip()


def measured_texts(files: Sequence[BenchmarkFile], own: Sequence[Prompt]) -> pl.DataFrame:
    """Return the measured texts: `name` of the file or split, `family` if known, and `text`."""
    rows = [(file.name, None, text) for file in files for text in file.texts]
    rows += [(f"{p.split} prompts", p.family, question_text(p)) for p in own]
    schema = {"name": pl.String, "family": pl.String, "text": pl.String}
    return pl.DataFrame(rows, schema=schema, orient="row").with_row_index("test")


def measured_digest(files: Sequence[BenchmarkFile], own: Sequence[Prompt]) -> Json:
    """Return the hashes of the measured texts, independent of the files' paths."""
    texts = sorted([p.split, p.family or "", question_text(p)] for p in own)
    return [*([file.name, file.digest] for file in files), *([digest(texts)] if own else [])]


def overlapping(train: pl.Series, measured: pl.DataFrame) -> pl.DataFrame:
    """Return the train texts that share an n-gram with a measured one, by `row`.

    `test` is the measured text that has most of its n-grams in it, and `share` how many of them.
    """
    found = [pl.DataFrame(schema=_FOUND)]
    for n, long in ((LONG_GRAM, True), (SHORT_GRAM, False)):
        texts = measured.filter(is_long("text") == long)
        grams_of_tests = _own_grams(texts, n)
        if not grams_of_tests.is_empty():
            found += [
                _shared_grams(train.slice(start, AT_ONCE), start, grams_of_tests, n)
                for start in range(0, len(train), AT_ONCE)
            ]
    most = pl.concat(found).sort("row", "share", "test", descending=[False, True, False])
    return most.unique("row", keep="first", maintain_order=True)


def _own_grams(texts: pl.DataFrame, n: int) -> pl.DataFrame:
    """Return the n-grams of each text (`test`, `gram`), without the template's."""
    each = grams(texts["text"], n).unique()
    group = pl.coalesce("family", "name").gather(each["row"])
    labelled = each.with_columns(texts.select(group=group, test=pl.col("test").gather(each["row"])))
    sizes = texts.group_by(group=pl.coalesce("family", "name")).agg(size=pl.len())
    labelled = labelled.join(sizes, on="group").with_columns(n=pl.len().over("group", "gram"))
    common = (pl.col("size") >= FEWEST) & (pl.col("n") >= TEMPLATE * pl.col("size"))
    return labelled.filter(~common).select("test", "gram")


def _shared_grams(train: pl.Series, start: int, test_grams: pl.DataFrame, n: int) -> pl.DataFrame:
    # Of the texts that have an n-gram one is enough: else many that share it meet many.
    first = test_grams.group_by("gram").agg(pl.col("test").min())
    shared = grams(train, n).unique().join(first, on="gram").group_by("row", "test").agg(n=pl.len())
    sizes = test_grams.group_by("test").agg(all=pl.len())
    return shared.join(sizes, on="test").select(
        (pl.col("row") + start).cast(pl.UInt32), "test", share=pl.col("n") / pl.col("all")
    )
