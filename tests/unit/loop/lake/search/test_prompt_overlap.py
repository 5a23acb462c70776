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


def asked(*rows):
    schema = dict.fromkeys(("id", "family", "text"), pl.String)
    return pl.DataFrame(rows, schema=schema, orient="row")
