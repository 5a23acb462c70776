"""The aspects a critique rates, with three-level rubrics (RLRF, Section 3.1, Table 7), from YAML.

A file (`configs.pools`) lists `aspects`, each with a `name`, `criteria` and `levels` (-1, 0 and 1).
One that extends a shipped file may state some of the levels of an aspect.
"""

from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints

from ..configs.pools import Pools
from ..configs.section import Section

RUBRICS = Pools(
    folder=Path(__file__).parent / "rubrics", item="aspect", nested=frozenset({"levels"})
)

Words = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Name = Annotated[Words, Field(pattern=r"^[^{}\[\]\"'\\`:\n\r]*$")]
"""A name is a key of the dictionary in the critic's reply, and a heading there."""


class Levels(Section):
    """The descriptions of -1 (failure), 0 (moderate) and 1 (success)."""

    failure: Words = Field(alias="-1")
    moderate: Words = Field(alias="0")
    success: Words = Field(alias="1")


class Aspect(Section):
    """One aspect: the question and the meaning of each rating."""

    name: Name
    criteria: Words
    levels: Levels

    @property
    def texts(self) -> tuple[str, str, str, str, str]:
        """Its name and criteria, and the levels from the worst to the best."""
        levels = self.levels
        return (self.name, self.criteria, levels.failure, levels.moderate, levels.success)


def load_aspects(name_or_path: str) -> tuple[Aspect, ...]:
    """Read a shipped aspects file by its name, or a YAML file by its path.

    Raises:
        ConfigError: if the file is missing or is not a list of whole aspects; names file and field.
    """
    return tuple(RUBRICS.read(RUBRICS.place(name_or_path), Aspect))


def render_aspects(aspects: tuple[Aspect, ...]) -> str:
    """Write aspects as templates show them: name, criteria, scoring; several are numbered."""
    return "\n\n".join(
        f"{f'{number}. ' if len(aspects) > 1 else ''}Skill: {name}\n"
        f"Criteria: {criteria}\n"
        f'Scoring: "-1": {failure} "0": {moderate} "1": {success}'
        for number, aspect in enumerate(aspects, start=1)
        for name, criteria, failure, moderate, success in (aspect.texts,)
    )
