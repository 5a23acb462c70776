"""A section of which a part is set keeps, for the rest, the defaults that it has in its place."""

import pytest

from lpfloop.configs.load import load_config

OWN = {"critic.sampling": 0.0, "grading.sampling": 0.0, "evaluation": 0.0, "policy.sampling": 1.0}


@pytest.mark.parametrize(("section", "temperature"), OWN.items())
def test_more_room_for_replies_changes_no_temperature(section: str, temperature: float):
    config = load_config("own", None, [f"{section}.max_tokens=900"], {})
    found = config
    for name in section.split("."):
        found = getattr(found, name)
    assert (found.temperature, found.max_tokens) == (temperature, 900)


def test_a_nucleus_of_its_own_stays_the_graders():
    config = load_config("own", None, ["grading.sampling.max_tokens=900"], {})
    assert config.grading.sampling.top_p == 0.6
