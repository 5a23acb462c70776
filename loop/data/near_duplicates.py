# pyright: basic
"""Hashed n-grams of texts, and their minima by MinHash.

Words are separated by white space and punctuation, in lower case; in scripts without spaces each
character counts as one. The sets of n-grams of two texts overlap about as much as their minima do.
"""

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
