"""Suggestions for an unknown name."""

from lpfloop.configs.likely_names import likely, meant

ASPECTS = ("Factuality", "Logical Correctness")


def test_spelling_before_near_name():
    assert likely("factuality", ASPECTS) == "Factuality"
    assert likely("Factualty", ASPECTS) == "Factuality"
    assert likely("style", ASPECTS) is None
    assert (meant("factuality", ASPECTS), meant("style", ASPECTS)) == (
        "did you mean 'Factuality'? ",
        "",
    )
