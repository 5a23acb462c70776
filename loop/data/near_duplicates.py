# pyright: basic
"""Similarity of texts: copies, and near copies by MinHash.

Words are separated by white space and punctuation, in lower case; in scripts without spaces each
character counts as one. Two texts are near copies if their sets of word 5-grams overlap by four
fifths of their union (estimated by 64 minima). Candidates for that share a band of minima, and are
compared with the first text of each band: linear in the number of texts.
"""

from dataclasses import dataclass

import polars as pl

GRAM = 5
MINIMA = 64
BAND = 4
"""Minima in a band: texts of similarity 0.8 miss each other in 2 of 10,000 cases."""

NEAR = 0.8
WORD = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}]|[\p{L}\p{M}\p{N}]+"
_MULTIPLIER = 6364136223846793005
_MINIMA = [f"m{k}" for k in range(MINIMA)]
_LEAST_HASHES = {
    name: pl.col("gram").hash(seed=k).min().cast(pl.UInt32, wrap_numerical=True)
    for k, name in enumerate(_MINIMA)
}
_BANDS = {
    f"band{band}": pl.struct(_MINIMA[first : first + BAND]).hash(seed=band)
    for band, first in enumerate(range(0, MINIMA, BAND))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """The similar texts of a set, by row number.

    `texts` has `id`, `group` and `key` (equal for copies). `within` lists each near copy of an
    earlier text of the same group, with that text (`row`, `other`, `similarity`); `across` lists
    near copies of a text of another group.
    """

    texts: pl.DataFrame
    within: pl.DataFrame
    across: pl.DataFrame

    @property
    def copies_within(self) -> int:
        """How many texts are copies of an earlier one of their group."""
        return self.texts.height - self.texts.select("group", "key").n_unique()

    @property
    def copies_across(self) -> int:
        """How many texts also occur in another group."""
        groups = self.texts.group_by("key").agg(
            pl.len(), pl.col("group").n_unique().alias("groups")
        )
        return int(groups.filter(pl.col("groups") > 1)["len"].sum())


def alike(texts: pl.DataFrame) -> Alike:
    """Compare all texts of a frame with `id`, `group` and `text`."""
    keyed = texts.select("id", "group", copy_key(pl.col("text")).alias("key")).with_row_index("row")
    pairs = _near(keyed.hstack(signatures(texts["text"])))
    return Alike(
        texts=keyed,
        within=pairs.filter(~pl.col("across")).drop("across"),
        across=pairs.filter("across").drop("across"),
    )


def copy_key(text: pl.Expr) -> pl.Expr:
    """Return a hash that is equal for texts that differ only in white space."""
    return text.str.replace_all(r"\s+", " ").str.strip_chars(" ").hash(seed=0)


def signatures(texts: pl.Series) -> pl.DataFrame:
    """Return the minima of each text's 5-grams under 64 hashes; null for a text without words."""
    return minima(grams(texts, GRAM), len(texts))


def minima(hashes: pl.DataFrame, count: int) -> pl.DataFrame:
    """Return the minima of the n-grams of each of `count` texts, as returned by `grams`."""
    found = hashes.group_by("row").agg(**_LEAST_HASHES)
    rows = pl.DataFrame({"row": pl.int_range(count, dtype=pl.UInt32, eager=True)})
    return rows.join(found, on="row", how="left", maintain_order="left").drop("row")


def similarity(signed: pl.DataFrame, rows: pl.Series, others: pl.Series) -> pl.Series:
    """Return the similarity of pairs of texts: the share of equal minima."""
    equal = (pl.col(name).gather(rows) == pl.col(name).gather(others) for name in _MINIMA)
    shared = signed.select(pl.sum_horizontal(*equal).alias("similarity"))["similarity"]
    return shared.cast(pl.Float64) / MINIMA


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


def _near(texts: pl.DataFrame) -> pl.DataFrame:
    """Return pairs of near copies (`row`, `other`, `similarity`, `across`), one a row and kind."""
    rows = texts.drop_nulls(_MINIMA[0]).select("row", "group", **_BANDS)
    bands = rows.unpivot(index=["row", "group"], value_name="band").drop("variable")
    met = _candidates_of(bands.filter(pl.col("band").is_duplicated())).unique(maintain_order=True)
    alike = similarity(texts.select(_MINIMA), met["row"], met["other"])
    found = met.with_columns(alike).filter(pl.col("similarity") >= NEAR)
    one_each = found.unique(["row", "across"], keep="first", maintain_order=True)
    return one_each.select("row", "other", "similarity", "across").sort("row")


def _candidates_of(keyed: pl.DataFrame) -> pl.DataFrame:
    """Return the texts to compare each with: the first of its band, in its group and in others."""
    band = keyed.sort("group", "row")
    own = band.with_columns(other=pl.col("row").first().over("group", "band"), across=False)
    ends = [
        band.with_columns(
            other=end.over("band"), away=pl.col("group").get(place).over("band"), across=True
        )
        for place, end in ((0, pl.col("row").first()), (-1, pl.col("row").last()))
    ]
    away = [frame.filter(pl.col("away") != pl.col("group")) for frame in ends]
    chosen = [own.filter(pl.col("other") != pl.col("row")), *away]
    return pl.concat([frame.select("row", "other", "across") for frame in chosen])
