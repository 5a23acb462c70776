"""Prompt templates: reading a set of them, and one-pass substitution of text into them.

A template is data (a `.txt` file). Its placeholders are `{name}` for the names that the caller
passes; every other brace is literal. The substituted text is never scanned again, so braces,
placeholders or section marks inside a user's text, a candidate or a critique can not change the
template's structure. Where a template puts texts between tags, these are broken inside the texts.

The shipped set `paper` has, in own words, the prompts of RLRF (Lee et al., 2024): Table 8
(`critique_general`), Table 9 without and with a reference (`critique_single`, `critique_reference`)
and Table 10 (`reflection`).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..configs.schema import ConfigError
from ..stores.keys import digest

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
TAG = re.compile(r"</?\s*([A-Za-z_][\w-]*)")
WORD_JOINER = "\u2060"
"""Invisible; between the bracket and the name of a tag it makes it a tag no more."""
TEMPLATES = Path(__file__).parent / "templates"
FALLBACK = "paper"

REQUIRED: dict[str, frozenset[str]] = {
    "critique_general": frozenset({"instruction", "answer"}),
    "critique_single": frozenset({"instruction", "answer"}),
    "critique_reference": frozenset({"instruction", "answer", "reference"}),
    "reflection": frozenset({"instruction", "answer", "feedback"}),
}
OPTIONAL: dict[str, frozenset[str]] = {
    "critique_general": frozenset({"aspects"}),
    "critique_single": frozenset({"aspects", "aspect"}),
    "critique_reference": frozenset({"aspects", "aspect"}),
    "reflection": frozenset[str](),
}


class TemplateError(ValueError):
    """A template that names a placeholder its use does not provide, or lacks one that it needs."""


def placeholders(template: str) -> frozenset[str]:
    """Return the names of the placeholders in `template`."""
    return frozenset(PLACEHOLDER.findall(template))


def render(template: str, values: Mapping[str, str]) -> str:
    """Replace each `{name}` of `template` by `values[name]`, in one pass.

    Raises:
        TemplateError: if the template names a placeholder that `values` lacks.
    """
    unknown = placeholders(template) - values.keys()
    if unknown:
        names = ", ".join(sorted(unknown))
        raise TemplateError(f"the template asks for {{{names}}}, which is not provided here")
    return PLACEHOLDER.sub(lambda match: values[match.group(1)], template)


@lru_cache
def tags(*templates: str | None) -> frozenset[str]:
    """Return the names of the tags that templates put around texts."""
    return frozenset(TAG.findall("\n".join(text for text in templates if text)))


def defused(text: str, names: frozenset[str]) -> str:
    """Return `text` with the tags of these names broken, so that it can not end its part early."""
    if "<" not in text or not names:
        return text
    any_name = "|".join(map(re.escape, sorted(names)))
    found = rf"<(?=\s*/?\s*(?:{any_name})\b)"
    return re.sub(found, f"<{WORD_JOINER}", text, flags=re.IGNORECASE)


def load_template(
    path: Path, required: frozenset[str] = frozenset(), optional: frozenset[str] = frozenset()
) -> str:
    """Read a template that must have the placeholders `required`, and may have `optional` ones.

    Raises:
        ConfigError: if it can not be read, or lacks a placeholder, or has another one; names it.
    """
    try:
        # Editors end a file with a line break; it is not part of the prompt.
        text = path.read_text(encoding="utf-8").removesuffix("\n")
    except OSError as error:
        raise ConfigError(f"{path}: the template can not be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: the template is not UTF-8 text") from error
    there = placeholders(text)
    if missing := required - there:
        raise ConfigError(f"{path}: the template lacks {_braced(missing)}")
    if unknown := there - required - optional:
        allowed = _braced(required | optional) or "none"
        raise ConfigError(
            f"{path}: unknown placeholder {_braced(unknown)}; this template may use {allowed}"
        )
    return text


def templates_in(folder: Path, known: Collection[str], shipped: Sequence[str]) -> dict[str, Path]:
    """Return the files of a set's folder by the names of their templates.

    Raises:
        ConfigError: if there is no such folder, or it holds a template that no set has.
    """
    if not folder.is_dir():
        names = ", ".join(shipped)
        raise ConfigError(f"{folder}: no folder of templates is there; shipped sets are {names}")
    found = {path.stem: path for path in sorted(folder.glob("*.txt"))}
    for name, path in found.items():
        if name not in known:
            raise ConfigError(f"{path}: unknown template; a set has {file_names(known)}")
    return found


def file_names(templates: Collection[str]) -> str:
    """Return the names of the files of templates, as a message lists them."""
    return ", ".join(f"{name}.txt" for name in templates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """The four templates that the feedback model and the reflecting policy are asked with."""

    critique_general: str
    critique_single: str
    critique_reference: str
    reflection: str

    @property
    def digest(self) -> str:
        """Return the hash of the four texts."""
        return digest(
            [self.critique_general, self.critique_single, self.critique_reference, self.reflection]
        )


def shipped() -> tuple[str, ...]:
    """Return the names of the template sets that come with the package."""
    return tuple(sorted(path.name for path in TEMPLATES.iterdir() if path.is_dir()))


def load_templates(name_or_folder: str) -> Templates:
    """Read a shipped set by its name, or a folder's files; a file that it lacks comes from `paper`.

    Raises:
        ConfigError: if there is no such folder, it holds no template or an unknown one, or one
            lacks a placeholder or has an unknown one; names the file.
    """
    folder = TEMPLATES / name_or_folder if name_or_folder in shipped() else Path(name_or_folder)
    found = templates_in(folder, REQUIRED, shipped())
    if not found:
        raise ConfigError(f"{folder}: holds none of {file_names(REQUIRED)}")
    return Templates(
        **{
            name: load_template(
                found.get(name, TEMPLATES / FALLBACK / f"{name}.txt"),
                REQUIRED[name],
                OPTIONAL[name],
            )
            for name in REQUIRED
        }
    )


def _braced(names: frozenset[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
