# pyright: basic
"""Texts of one set that overlap with texts of another, such as held-out prompts with train ones.

Prompts of one family may share only a template. Words that many prompts of a family have are its
template; the others, and all numbers, are a prompt's own words. Two prompts of the same known
family overlap if they share n-grams and their own words. Otherwise a prompt overlaps with another
that has most of its n-grams.

Texts are compared by hashed n-grams of words. Words are separated by white space and punctuation,
in lower case; in scripts without spaces each character counts as one. The sets of n-grams of two
texts overlap about as much as their minima do.
"""

from typing import Literal

import polars as pl

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


LONG_GRAM, SHORT_GRAM = 13, 8
"""Contamination is measured by 13-grams, as usual; in texts with fewer than two, by 8-grams."""
TEMPLATE = 0.25
"""Words in this share of a family's texts are its template, or one of a few wordings of it."""
FEWEST = 12
"""The fewest texts from which a family's template can be recognised."""
MOST = 0.5
"""The share of its n-grams that a text of a known family must have in common with others."""

_OVERLAPS = {"id": pl.String, "share": pl.Float64}

Near = Literal["any", "own", "other"]
"""With texts of which family the n-grams are shared."""


def overlaps(known: pl.DataFrame, tested: pl.DataFrame) -> pl.Series:
    """Return the ids of the tested texts that share n-grams with a known one.

    Both frames have `id`, `text` and `family`, which may be null. A text with fewer words than n
    counts as one n-gram.
    """
    both = _with_own_words(pl.concat([known, tested]))
    known, tested = both.head(known.height), both.tail(tested.height)
    alone = tested.filter(pl.col("family").is_null())
    related = tested.filter(pl.col("family").is_not_null())
    of_family = _by_length(known, related, "own")
    found = [
        _by_length(known, alone, "any"),
        _by_length(known, related, "other").filter(pl.col("share") >= MOST),
        of_family.join(_with_equal_words(known, related), on="id", how="semi"),
    ]
    return pl.concat(found)["id"].unique()


def _with_equal_words(known: pl.DataFrame, tested: pl.DataFrame) -> pl.DataFrame:
    """Return the tested texts whose own words equal a known one's; of many, 13 in a row.

    A text that consists only of its template is compared by all of its words.
    """
    of_own = [
        frame.with_columns(text=pl.coalesce("own", "text")).drop("own") for frame in (known, tested)
    ]
    long = is_long("text")
    found = [
        _shared_texts(of_own[0], of_own[1].filter(long), LONG_GRAM, "own"),
        # In a text with fewer words than n all of them are one n-gram.
        _shared_texts(of_own[0], of_own[1].filter(~long), 2 * LONG_GRAM, "own"),
    ]
    return pl.concat(found)


def _with_own_words(texts: pl.DataFrame) -> pl.DataFrame:
    """Return texts with their `own` words, without the template's; unclear families are null."""
    size = pl.len().over("family")
    large = pl.when(size >= FEWEST).then("family").alias("family")
    rows = texts.select("id", "text", large, row=pl.int_range(pl.len(), dtype=pl.UInt32))
    words = rows.filter(pl.col("family").is_not_null()).select(
        "row",
        "family",
        size.alias("size"),
        word=pl.col("text").str.to_lowercase().str.extract_all(WORD),
    )
    each = words.explode("word")
    common = pl.col("row").n_unique().over("family", "word") >= TEMPLATE * pl.col("size")
    number = pl.col("word").str.contains(r"^\p{N}")
    own = each.filter(~common | number).group_by("row", maintain_order=True).agg(pl.col("word"))
    joined = own.select("row", own=pl.col("word").list.join(" "))
    return rows.join(joined, on="row", how="left", maintain_order="left").drop("row")


def _by_length(known: pl.DataFrame, tested: pl.DataFrame, near: Near) -> pl.DataFrame:
    long = is_long("text")
    return pl.concat(
        [
            _shared_texts(known, tested.filter(long), LONG_GRAM, near),
            _shared_texts(known, tested.filter(~long), SHORT_GRAM, near),
        ]
    )


def is_long(text: str) -> pl.Expr:
    """Whether a text has words for two n-grams of the longer kind."""
    return pl.col(text).str.to_lowercase().str.extract_all(WORD).list.len() >= 2 * LONG_GRAM


def _shared_texts(known: pl.DataFrame, tested: pl.DataFrame, n: int, near: Near) -> pl.DataFrame:
    if tested.is_empty():
        return pl.DataFrame(schema=_OVERLAPS)
    test_grams = grams(tested["text"], n).unique()
    test_grams = test_grams.with_columns(family=tested["family"].gather(test_grams["row"]))
    there = grams(known["text"], n).join(test_grams.select("gram").unique(), on="gram", how="semi")
    there = there.select("gram", family=known["family"].gather(there["row"])).unique()
    same = pl.col("family").eq_missing(pl.col("family_right"))
    kept = {"any": pl.lit(value=True), "own": same, "other": ~same}[near]
    met = test_grams.join(there, on="gram", how="inner").filter(kept)
    shared = met.group_by("row").agg(pl.col("gram").n_unique())
    counts = shared.join(test_grams.group_by("row").agg(pl.len().alias("all")), on="row")
    return counts.select(
        tested["id"].gather(counts["row"]).alias("id"),
        (pl.col("gram") / pl.col("all")).alias("share"),
    )
