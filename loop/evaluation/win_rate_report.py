"""Results of a file of annotations: win-rate, also by group, and lead over a rival."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from ..data.files import InputError
from ..lake.statistics.win_rate import Difference, WinRate, difference, win_rate
from .alpaca_eval import Annotation, groups
from .instruction_difficulty import difficulties_of
from .length_control import Compared, LengthControlled, Uncontrolled, length_controlled


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A model's results against the reference on some prompts; lengths are mean characters."""

    of: str
    won: WinRate
    controlled: LengthControlled | Uncontrolled
    mean_length: float
    reference_length: float


def won(annotations: Sequence[Annotation]) -> WinRate:
    """Return the win-rate of annotations, at least one of them read."""
    return win_rate([a.preference for a in annotations], [a.instruction for a in annotations])


def standings(
    name: str, annotations: Sequence[Annotation], difficulty: Path | None = None
) -> list[Standing]:
    """Return a model's results on all prompts, and on each group with a read preference.

    Raises:
        InputError: if the file of difficulties cannot be used.
    """
    parts = [(name, annotations), *groups(annotations).items()]
    return [
        _standing(of, part, difficulty)
        for of, part in parts
        if any(a.preference is not None for a in part)
    ]


def lead(annotations: Sequence[Annotation], rival: Sequence[Annotation]) -> Difference:
    """Return a model's lead in win-rate over its rival, as a share.

    Raises:
        InputError: if no instruction was scored for both.
    """
    found = difference(_by_instruction(rival), _by_instruction(annotations))
    if found is None:
        raise InputError("no instruction was scored in both files")
    return found


def generator_of(annotations: Iterable[Annotation], path: Path) -> str:
    """Return the model's name; default: the file's name."""
    return next((a.generator for a in annotations if a.generator is not None), path.stem)


def _standing(of: str, annotations: Sequence[Annotation], difficulty: Path | None) -> Standing:
    read = [(a, a.won) for a in annotations if a.won is not None]
    asked = [a.instruction for a, _ in read]
    return Standing(
        of=of,
        won=won(annotations),
        controlled=length_controlled(
            Compared(
                won=[won for _, won in read],
                longer_by=[a.longer_by for a, _ in read],
                prompts=asked,
                difficulty=None if difficulty is None else difficulties_of(difficulty, asked),
            )
        ),
        mean_length=fmean(len(a.output) for a in annotations),
        reference_length=fmean(len(a.reference) for a in annotations),
    )


def _by_instruction(annotations: Iterable[Annotation]) -> dict[str, float]:
    """Return the mean score of each instruction."""
    found: dict[str, list[float]] = {}
    for annotation in annotations:
        if annotation.won is not None:
            found.setdefault(annotation.instruction, []).append(annotation.won)
    return {instruction: fmean(values) for instruction, values in found.items()}
