"""Principles for completions, and the mix of them for each source of prompts.

An aspect's texts are a list in a YAML file. A mix names, for each source of prompts, the shares of
the aspects; your mix may add aspects, whose files are named by `texts`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

from pydantic import Field, ValidationError

from ...configs.mistakes import did_you_mean
from ...configs.pools import Pools, fault, read_yaml
from ...configs.schema import ConfigError
from ...configs.section import Section
from ...stores.keys import Json, digest

HERE = Path(__file__).parent
TEXTS = Pools(folder=HERE / "principles", item="aspect")
MIXES = Pools(folder=HERE / "mixes", item="mix")
NO_PRINCIPLES = "none"
ROUNDING = 1e-6
"""How far the sum of shares may be from 1."""

Share = Annotated[float, Field(gt=0, le=1)]
Shares = dict[str, Share]


@dataclass(frozen=True, slots=True, kw_only=True)
class Principle:
    """A principle for a completion: an aspect, and a text for the system message."""

    aspect: str
    text: str

    def __str__(self) -> str:
        """Return both as a candidate stores them; `read` takes them apart."""
        return f"{self.aspect}: {self.text}"

    @classmethod
    def read(cls, stored: str) -> "Principle":
        """Return the principle that a candidate stores; the aspect is empty if it names none."""
        aspect, colon, text = stored.partition(": ")
        return cls(aspect=aspect, text=text) if colon else cls(aspect="", text=stored)


class _MixFile(Section):
    texts: dict[str, str] = Field(default_factory=dict)
    sources: dict[str, Shares] = Field(default_factory=dict)
    default: Shares


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """The shares of aspects by source, and the texts of each aspect."""

    name: str
    sources: Mapping[str, Shares]
    default: Shares
    texts: Mapping[str, tuple[str, ...]]

    def shares(self, source: str) -> Shares:
        """Return the shares for a source: the entry with the longest name that prefixes it."""
        named = [name for name in self.sources if source.startswith(name)]
        return self.sources[max(named, key=len)] if named else self.default

    @property
    def digest(self) -> str:
        """Return the hash of all that decides which principle a completion gets."""
        shares: Json = {"sources": dict(self.sources), "default": self.default}
        return digest([shares, {aspect: list(texts) for aspect, texts in self.texts.items()}])


def shipped_texts(aspect: str) -> tuple[str, ...]:
    """Return the shipped principles of an aspect.

    Raises:
        ConfigError: if the aspect is not shipped.
    """
    shipped = TEXTS.shipped_names()
    if aspect not in shipped:
        raise ConfigError(
            f"no principles of {aspect!r} are shipped; {did_you_mean(aspect, shipped)}there are "
            f"{', '.join(shipped)}"
        )
    return read_texts(TEXTS.place(aspect))


def read_texts(path: Path) -> tuple[str, ...]:
    """Return the principles of a file: a YAML list of texts.

    Raises:
        ConfigError: if it is not one, or a text is empty or repeated; names the file.
    """
    document = read_yaml(path, missing="no principles can be read")
    listed = cast("list[object]", document) if isinstance(document, list) else []
    texts = [text.strip() for text in listed if isinstance(text, str)]
    if not listed or len(texts) < len(listed) or not all(texts):
        raise ConfigError(
            f"{path}: must be a list of texts, one a principle (a text with ': ' "
            "in it needs quotes)"
        )
    for number, text in enumerate(texts):
        if text in texts[:number]:
            raise ConfigError(f"{path}: the principle {text[:60]!r} appears twice")
    return tuple(texts)


def load_mix(name_or_path: str) -> Mix | None:
    """Read a shipped mix by its name, or a YAML file by its path; `none` gives None.

    Raises:
        ConfigError: if the file is missing or is not a mix; names the file and the field.
    """
    if name_or_path == NO_PRINCIPLES:
        return None
    path = MIXES.place(name_or_path)
    names = ", ".join((*MIXES.shipped_names(), NO_PRINCIPLES))
    document = read_yaml(
        path, missing="no mix of principles can be read", hint=f"; shipped are {names}"
    )
    try:
        mix = _MixFile.model_validate(document)
    except ValidationError as error:
        raise ConfigError(f"{path}: {fault(error, _MixFile)}") from error
    for source, shares in {"default": mix.default, **mix.sources}.items():
        total = sum(shares.values())
        if abs(total - 1) > ROUNDING:
            raise ConfigError(
                f"{path}: the shares of {source} must add up to 1, but sum to {total:g}"
            )
    used = {aspect for shares in (mix.default, *mix.sources.values()) for aspect in shares}
    texts = {aspect: _texts(path, aspect, mix.texts) for aspect in sorted(used)}
    return Mix(name=path.stem, sources=mix.sources, default=mix.default, texts=texts)


def _texts(path: Path, aspect: str, files: Mapping[str, str]) -> tuple[str, ...]:
    """Return an aspect's texts: from the file that the mix names, or the shipped ones."""
    if aspect in files:
        return read_texts(path.parent / files[aspect])
    try:
        return shipped_texts(aspect)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}; name your file under 'texts'") from error
