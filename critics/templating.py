"""Prompt templates: reading sets of them, and one-pass substitution of text into them.

A template is data (a `.txt` file). Its placeholders are `{name}` for the names that the caller
passes; every other brace is literal. The substituted text is never scanned again, so braces,
placeholders or section marks inside a user's text, a candidate or a critique cannot change the
template's structure. If a template puts texts between tags, these are broken inside the texts.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ..configs.schema import ConfigError
from ..stores.chat_markers import WORD_JOINER

PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
TAG = re.compile(r"</?\s*([A-Za-z_][\w-]*)")
NONE = frozenset[str]()
Shows = tuple[frozenset[str], frozenset[str]]
"""The placeholders that a template must have, and the optional ones."""


class TemplateError(ValueError):
    """A template that names a placeholder its use does not provide, or lacks one that it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSets:
    """The sets of one kind: folders of templates, the shipped ones inside `folder`.

    `fallback` names the shipped set that supplies templates which another set lacks. Without one, a
    set must have all templates except the `spare` ones.
    """

    folder: Path
    files: Mapping[str, Shows]
    spare: Collection[str] = ()
    fallback: str | None = None

    @property
    def shipped(self) -> tuple[str, ...]:
        """The names of the sets that come with the package."""
        return tuple(sorted(path.name for path in self.folder.iterdir() if path.is_dir()))

    def load(
        self, name_or_folder: str, base: Path = Path(), *, only: Collection[str] = ()
    ) -> dict[str, str]:
        """Read a shipped set by its name, or a folder, relative to `base`.

        If only a part of a set is needed, `only` these templates are read.

        Raises:
            ConfigError: if the folder is missing, a file of it is missing or unknown, or one lacks
                a placeholder or has an unknown one; names the file.
        """
        folder = (self.folder if name_or_folder in self.shipped else base) / name_or_folder
        found = self._find_templates(folder)
        if self.fallback is not None and not found:
            raise ConfigError(f"{folder}: holds none of {_file_names(self.files)}")
        lender = folder if self.fallback is None else self.folder / self.fallback
        names = [name for name in self.files if name in found or name not in self.spare]
        return {
            name: load_template(
                (folder if name in found else lender) / f"{name}.txt", *self.files[name]
            )
            for name in only or names
        }

    def _find_templates(self, folder: Path) -> frozenset[str]:
        """Return the names of the templates in a folder."""
        if not folder.is_dir():
            names = ", ".join(self.shipped)
            raise ConfigError(
                f"{folder}: no folder of templates is there; shipped sets are {names}"
            )
        names = sorted(path.stem for path in folder.glob("*.txt"))
        for name in names:
            if name not in self.files:
                known = _file_names(self.files)
                raise ConfigError(f"{folder / name}.txt: unknown template; a set has {known}")
        return frozenset(names)


def placeholders(*templates: str) -> frozenset[str]:
    """Return the names of the placeholders in `templates`."""
    return frozenset(PLACEHOLDER.findall("\n".join(templates)))


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
def tags(*templates: str) -> frozenset[str]:
    """Return the names of the tags that templates put around texts."""
    return frozenset(TAG.findall("\n".join(templates)))


@lru_cache
def fixed_lines(*templates: str) -> frozenset[str]:
    """Return the lines of templates that are in every question unchanged."""
    lines = (line.strip() for template in templates for line in template.splitlines())
    return frozenset(line for line in lines if not placeholders(line))


def defuse_tags(text: str, names: frozenset[str]) -> str:
    """Return `text` with the tags of these names broken, so that it cannot end its part early."""
    if "<" not in text or not names:
        return text
    any_name = "|".join(map(re.escape, sorted(names)))
    found = rf"<(?=\s*/?\s*(?:{any_name})\b)"
    return re.sub(found, f"<{WORD_JOINER}", text, flags=re.IGNORECASE)


def load_template(
    path: Path, required: frozenset[str] = NONE, optional: frozenset[str] = NONE
) -> str:
    """Read a template that must have the placeholders `required`, and may have `optional` ones.

    Raises:
        ConfigError: if it cannot be read, or lacks a placeholder, or has another one; names it.
    """
    try:
        # Editors end a file with a line break; it is not part of the prompt.
        text = path.read_text(encoding="utf-8").removesuffix("\n")
    except OSError as error:
        raise ConfigError(f"{path}: the template cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: the template is not UTF-8 text") from error
    there = placeholders(text)
    if missing := required - there:
        raise ConfigError(f"{path}: the template lacks {_join_braced(missing)}")
    if unknown := there - required - optional:
        allowed = _join_braced(required | optional) or "none"
        raise ConfigError(
            f"{path}: unknown placeholder {_join_braced(unknown)}; this template may use {allowed}"
        )
    return text


def _file_names(templates: Collection[str]) -> str:
    return ", ".join(f"{name}.txt" for name in templates)


def _join_braced(names: frozenset[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
