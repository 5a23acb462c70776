"""Suggestions for an unknown name."""

from lpfloop.configs.mistakes import did_you_mean, likely

ASPECTS = ("Factuality", "Logical Correctness")


def test_spelling_before_near_name():
    assert likely("factuality", ASPECTS) == "Factuality"
    assert likely("Factualty", ASPECTS) == "Factuality"
    assert likely("style", ASPECTS) is None
    assert (did_you_mean("factuality", ASPECTS), did_you_mean("style", ASPECTS)) == (
        "did you mean 'Factuality'? ",
        "",
    )
