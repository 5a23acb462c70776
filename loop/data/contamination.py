# pyright: basic
"""Texts that overlap with texts of another set: train prompts with a benchmark's, tests with train.

Texts are compared by hashed n-grams of words: 13 words, or 8 in texts with fewer than 26. Answers
are ignored. An n-gram that many prompts of one benchmark, or of one family, have is their template
and does not count. Words are separated by white space and punctuation, in lower case; in scripts
without spaces each character counts as one. The sets of n-grams of two texts overlap about as much
as their minima do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ...configs.judging import RuleFilters
from ...stores.keys import Json, digest
from ...stores.records import Prompt
from .conversations import NoUserTurnError
from .files import InputError, RowError, file_digest, placed_rows
from .prompt_rows import RowShape, to_prompt
from .splits import TRAIN

LONG_GRAM, SHORT_GRAM = 13, 8
"""Contamination is measured by 13-grams, as usual; in texts with fewer than two, by 8-grams."""
TEMPLATE = 0.25
"""N-grams in this share of a family's texts are its template, or one of a few wordings of it."""
FEWEST = 12
"""The fewest texts from which a family's template can be recognised."""
AT_ONCE = 16_384
"""Train prompts whose n-grams are in memory at once."""
SYSTEM = "system"
FIRST = RowShape(turns="first")
_FOUND = {"row": pl.UInt32, "test": pl.UInt32, "share": pl.Float64}

MINIMA = 64
WORD = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]|[\p{L}\p{M}\p{N}]+"
_MULTIPLIER = 6364136223846793005
_LEAST_HASHES = {
    f"m{k}": pl.col("gram").hash(seed=k).min().cast(pl.UInt32, wrap_numerical=True)
    for k in range(MINIMA)
}


def minima(hashes: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return the minima of the n-grams of each of `count` texts, as returned by `grams`."""
    found = hashes.group_by("row").agg(**_LEAST_HASHES)
    rows = pl.DataFrame({"row": pl.int_range(count, dtype=pl.UInt32, eager=True)})
    return rows.join(found, on="row", how="left", maintain_order="left").drop("row")


def grams(texts: pl.Series, n: int) -> pl.DataFrame:
    """Return each text's n-grams, hashed (`row`, `gram`); a short text has one, of all words."""
    words = pl.DataFrame({"text": texts}).select(
        pl.int_range(pl.len(), dtype=pl.UInt32).alias("row"),
        pl.col("text").str.to_lowercase().str.extract_all(WORD).alias("words"),
    )
    count = pl.col("words").list.len()
    short = words.filter((count > 0) & (count < n)).select(
        "row", pl.col("words").list.join(" ").hash(seed=2).alias("gram")
    )
    each = (
        words.filter(count >= n).explode("words").select("row", word=pl.col("words").hash(seed=1))
    )
    gram = pl.col("word")
    for step in range(1, n):
        gram = gram * pl.lit(_MULTIPLIER, pl.UInt64) + pl.col("word").shift(-step)
    whole = pl.col("row") == pl.col("row").shift(1 - n)
    return pl.concat([each.select("row", gram=gram).filter(each.select(whole).to_series()), short])


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
    for n, tests in _own_grams(measured):
        # Of the texts that have an n-gram one is enough: else many that share it meet many.
        first = tests.group_by("gram").agg(pl.col("test").min())
        sizes = tests.group_by("test").agg(all=pl.len())
        for start in range(0, len(train), AT_ONCE):
            met = grams(train.slice(start, AT_ONCE), n).unique().join(first, on="gram")
            shared = met.group_by("row", "test").agg(n=pl.len()).join(sizes, on="test")
            row = (pl.col("row") + start).cast(pl.UInt32)
            found.append(shared.select(row, "test", share=pl.col("n") / pl.col("all")))
    most = pl.concat(found).sort("row", "share", "test", descending=[False, True, False])
    return most.unique("row", keep="first", maintain_order=True)


def overlaps(known: pl.DataFrame, tested: pl.DataFrame) -> pl.Series:
    """Return the ids of the tested texts that share n-grams with a known one.

    Both frames have `id`, `text` and `family`, which may be null. Texts of a family may be alike,
    so one of these must have all of its n-grams in common with others.
    """
    tested = tested.with_row_index("test").with_columns(name=pl.lit("tested"))
    found = [pl.Series("id", dtype=pl.String)]
    for n, tests in _own_grams(tested):
        met = tests.with_columns(
            met=pl.col("gram").is_in(grams(known["text"], n)["gram"].implode())
        )
        share = met.group_by("test").agg(pl.col("met").mean()).join(tested, on="test")
        overlap = pl.when(pl.col("family").is_null()).then(pl.col("met") > 0)
        found.append(share.filter(overlap.otherwise(pl.col("met") == 1))["id"])
    return pl.concat(found)


def _own_grams(texts: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield n, and the n-grams of each text of this n (`test`, `gram`), without the template's."""
    words = pl.col("text").str.to_lowercase().str.extract_all(WORD).list.len()
    long = words >= 2 * LONG_GRAM
    group = pl.coalesce("family", "name")
    for n, own in ((LONG_GRAM, texts.filter(long)), (SHORT_GRAM, texts.filter(~long))):
        if own.is_empty():
            continue
        each = grams(own["text"], n).unique()
        labels = own.select("test", group=group, size=pl.len().over(group))
        labelled = pl.concat([each, labels[each["row"]]], how="horizontal")
        count = pl.len().over("group", "gram")
        common = (pl.col("size") >= FEWEST) & (count >= TEMPLATE * pl.col("size"))
        yield n, labelled.filter(~common).select("test", "gram")
