"""What is said of a name that is unknown."""

from lpfloop.configs.likely_names import SHOWN, alike, likely, listed, meant

ASPECTS = ("Factuality", "Logical Correctness")


def test_another_spelling_is_likelier_than_a_near_name():
    assert likely("factuality", ASPECTS) == "Factuality"
    assert likely("Factualty", ASPECTS) == "Factuality"
    assert likely("style", ASPECTS) is None
    assert (meant("factuality", ASPECTS), meant("style", ASPECTS)) == (
        "did you mean 'Factuality'? ",
        "",
    )


def test_a_long_list_is_cut_and_says_how_to_see_the_rest():
    names = [f"n{number}" for number in range(SHOWN + 3)]
    assert listed(names[:SHOWN]).count(", ") == SHOWN - 1
    assert listed(names, "`all` lists them").endswith("n15 and 3 more (`all` lists them)")
    assert listed([]) == "none"
    assert alike("n18", names)[0] == "n18"
