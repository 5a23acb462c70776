"""A partly set section keeps its other defaults: the field's, not the class's."""

from lpfloop.configs.load import load_config

OWN = {"critic.sampling": 0.0, "grading.sampling": 0.0, "evaluation": 0.0, "policy.sampling": 1.0}


def test_part_keeps_other_defaults(subtests):
    for section, temperature in OWN.items():
        with subtests.test(case=section):
            config = load_config("own", None, [f"{section}.max_tokens=900"], {})
            found = config
            for name in section.split("."):
                found = getattr(found, name)
            assert (found.temperature, found.max_tokens) == (temperature, 900)
