"""Rules that refuse prompts without a model (ChatGLM-RLHF, Section 3.2): length, script, copies.

Prompts that overlap with measured ones, such as a benchmark's, are refused, too.

Length and script are computed from all messages except the system's. A copy is a conversation that
equals an earlier one up to case, white space and forms of characters (NFKC). Near copies are kept:
problems from one template differ in a number, and the difference is worth learning.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from ...configs.judging import RuleFilters
from ...configs.schema import ConfigError
from ...stores.keys import Json
from ...stores.records import Prompt
from .contamination import (
    BenchmarkFile,
    measured_digest,
    measured_texts,
    overlapping,
    question_text,
)
from .filter_counts import KEPT
from .splits import TRAIN

TOO_SHORT, TOO_LONG, OTHER_SCRIPT, COPY = "too_short", "too_long", "other_script", "duplicate"
OVERLAPS = "overlaps with"
"""The prefix of the outcome of overlapping prompts; the name of the file or split follows."""
Said = tuple[tuple[str, str], ...]
"""Roles and contents, normalised for comparison."""
SOLID = r"\p{Han}\p{Hiragana}\p{Katakana}"
"""Scripts that put no space between words."""
SPELT = rf"[\p{{L}}--[{SOLID}]]"
"""A letter of the others."""
SCRIPT = re.compile(r"[A-Za-z]+(?:[ _][A-Za-z]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The configured rules, and the benchmarks that they name."""

    config: RuleFilters
    benchmarks: Sequence[BenchmarkFile] = field(default=(), repr=False)

    @classmethod
    def from_config(cls, config: RuleFilters) -> "Rules":
        """Build the rules from a configuration.

        Raises:
            ConfigError: if a script is unknown to Unicode, or the bounds on length exclude each
            other.
            InputError: if a benchmark's file cannot be read.
        """
        for name in config.scripts:
            if not _is_script(name):
                raise ConfigError(
                    f"prompts.rules.scripts: {name!r} is not a script of Unicode; name them as in "
                    "latin, han, cyrillic, arabic"
                )
        least, most = config.min_chars, config.max_chars
        if least is not None and most is not None and least > most:
            raise ConfigError(
                f"prompts.rules.min_chars is {least} and max_chars {most}: no prompt can be both"
            )
        return cls(config=config, benchmarks=BenchmarkFile.of(config))

    @property
    def on(self) -> bool:
        """Whether any rule is set."""
        return self.config != RuleFilters()

    def params(self, every: Sequence[Prompt]) -> dict[str, Json]:
        """Return everything that decides about prompts; for files, their contents without paths."""
        rules = self.config.model_dump(mode="json")
        rules.pop("benchmarks", None)
        looked_for = measured_digest(self.benchmarks, self._tests(every))
        return {"rules": rules, **({"looked_for": looked_for} if looked_for else {})}

    def fates(self, prompts: Sequence[Prompt], every: Sequence[Prompt] = ()) -> list[str]:
        """Return for each prompt `kept`, or the first rule that refuses it.

        A copy of a prompt that another rule refuses is not counted as a copy. `every` are all of
        the run's prompts, including the measured ones.
        """
        texts = [question_text(prompt) for prompt in prompts]
        measured = self._overlaps(texts, every)
        others = self._in_other_scripts(texts)
        seen = set[Said]()
        found = list[str]()
        for row, (prompt, text, other) in enumerate(zip(prompts, texts, others, strict=True)):
            fate = self._length(text) or (OTHER_SCRIPT if other else measured.get(row, KEPT))
            if fate == KEPT and self.config.duplicates:
                key = normal(prompt)
                fate = COPY if key in seen else KEPT
                seen.add(key)
            found.append(fate)
        return found

    def _tests(self, every: Sequence[Prompt]) -> list[Prompt]:
        return [p for p in every if p.split != TRAIN] if self.config.own_tests else []

    def _overlaps(self, texts: Sequence[str], every: Sequence[Prompt]) -> dict[int, str]:
        """Return the benchmark or split that each overlapping text overlaps with, by its index."""
        measured = measured_texts(self.benchmarks, self._tests(every))
        if measured.is_empty():
            return {}
        found = overlapping(pl.Series(texts, dtype=pl.String), measured)
        names = measured["name"].gather(found["test"])
        return {row: f"{OVERLAPS} {name}" for row, name in zip(found["row"], names, strict=True)}

    def _length(self, text: str) -> str | None:
        least, most = self.config.min_chars, self.config.max_chars
        if least is not None and len(text) < least:
            return TOO_SHORT
        return TOO_LONG if most is not None and len(text) > most else None

    def _in_other_scripts(self, texts: Sequence[str]) -> list[bool]:
        """Return for each text whether at least half of its words are outside the scripts.

        A Chinese or Japanese character counts as a word: a name or a line of code in Latin letters
        does not outweigh a sentence of characters.
        """
        if not self.config.scripts:
            return [False] * len(texts)
        allowed = "".join(_pattern(name) for name in self.config.scripts)
        text = pl.col("text")
        words = text.str.count_matches(f"[{SOLID}]|{SPELT}+").cast(pl.Int64)
        own = f"[[{allowed}]&&[{SOLID}]]|[[{allowed}]&&{SPELT}]{SPELT}*"
        owned = text.str.count_matches(own).cast(pl.Int64)
        frame = pl.DataFrame({"text": texts}, schema={"text": pl.String})
        return frame.select((words > 0) & (2 * owned <= words)).to_series().to_list()


def normal(prompt: Prompt) -> Said:
    """Return the normalised form that copies of a prompt share."""
    return tuple((m.role, _plain(m.content)) for m in prompt.messages)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _pattern(script: str) -> str:
    return rf"\p{{Script={script}}}"


def _is_script(name: str) -> bool:
    if not SCRIPT.fullmatch(name):
        return False
    try:
        pl.select(pl.lit("").str.contains(_pattern(name)))
    except pl.exceptions.ComputeError:
        return False
    return True
