"""verl's fields of a prompt: `reward_model` holds the reference, `ability` the task."""

from .file_row import Row


def with_reference(row: Row) -> Row:
    """Return a row of verl with its reference, task and source under their names here."""
    scored = row.glance("reward_model")
    if not isinstance(scored, Row) or "ground_truth" not in scored or "reference" in row:
        return row
    row.get("reward_model")
    given = scored["ground_truth"]
    named = {"task": "ability", "source": "data_source"}
    mapped = {name: row[own] for name, own in named.items() if name not in row and own in row}
    return row.having({"reference": None if given == "" else given, **mapped})
