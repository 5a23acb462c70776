"""Contamination: held-out prompts among those to train on."""

import polars as pl

from lpfloop.loop.data.contamination import overlaps

LONG = "the train leaves the station at nine and arrives in the other town before it is noon"
OTHER = "she sells the seven small shells that her sister had found on the shore last summer"


def test_held_out_prompt_in_train():
    long = f"{LONG} {OTHER}"
    train = asked(("t1", None, long), ("t2", None, "How many?"))
    held_out = asked(
        ("same", None, long.upper()),
        ("short", None, "how many"),
        ("piece", None, f"Well, {LONG}"),
        ("new", None, "nothing of that kind at all"),
    )
    assert set(overlaps(train, held_out)) == {"same", "short", "piece"}


def test_families_share_a_template():
    """Prompts of one family overlap only if they share most of what its template leaves."""
    lines = [
        f"Say in one sentence what a good friend of {n} would do in town {n + 7}" for n in range(24)
    ]
    train = asked(*((f"t{n}", "friends", line) for n, line in enumerate(lines[:20])))
    held_out = asked(
        ("same", "friends", lines[3]),
        *((f"h{n}", "friends", line) for n, line in enumerate(lines[20:] * 3)),
    )
    assert list(overlaps(train, held_out)) == ["same"]


def asked(*rows):
    schema = dict.fromkeys(("id", "family", "text"), pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")
