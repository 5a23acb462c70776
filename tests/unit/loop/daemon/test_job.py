"""Settings that belong to a run's identity: every field that can change a row, and no other."""

from pydantic import SecretStr

from lpfloop.configs.describe import effect_of, is_secret, semantic
from lpfloop.configs.load import load_config
from lpfloop.configs.section import Section
from lpfloop.loop.daemon.job import changed_fields, fingerprint_of


def sections_in(section, path=""):
    """Yield a section and all its subsections, each with its path."""
    yield path, section
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from sections_in(value, f"{path}{name}.")


def other(value):
    """Return another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case None:
            return "something"
        case _:
            return None


def test_a_section_keeps_its_semantic_fields(monkeypatch):
    """The test bypasses validation: the values accepted by a field do not matter here."""
    plain = Section.model_dump
    monkeypatch.setattr(
        Section, "model_dump", lambda self, **how: plain(self, **{**how, "warnings": False})
    )
    effects, wrong = set(), []
    for path, section in sections_in(load_config("tiny", "rlrf", (), {})):
        before = semantic(section)
        for name, info in type(section).model_fields.items():
            value = getattr(section, name)
            if isinstance(value, Section):
                continue
            effect = effect_of(info)
            effects.add(effect)
            new = SecretStr("key") if is_secret(info) else other(value)
            changed = semantic(section.model_copy(update={name: new}))
            if (changed != before) != (effect == "semantic" and not is_secret(info)):
                wrong.append(f"{path}{name}")
    assert wrong == []
    assert effects == {"semantic", "cosmetic", "live"}


def test_changes_listed_by_path():
    def of(recipe, *overrides):
        return fingerprint_of(load_config("tiny", recipe, overrides, {}))

    before = of("rlrf")
    changed = of("rlrf", "recipe.top_k=1", "training.dpo.beta=0.3", "critic.engine.concurrency=3")
    assert changed_fields(before, changed) == [
        "config.recipe.top_k: 2 -> 1",
        "config.training.dpo.beta: 0.1 -> 0.3",
    ]
