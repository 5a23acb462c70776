"""Other people's preferences, trained on together with the run's pairs.

The files have any imported format with a preference between two answers. Each row becomes a pair of
external candidates; of several votes on the same two answers the majority decides. A pair is
skipped and counted if its prompt is in a measured split of the run, if it is undecided, if a side
is empty, if both sides are equal, or if an earlier row has it. A pair is also undecided if both
scores are given and the chosen answer's is not higher.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from ...configs.recipes import Graded
from ...configs.schema import RunConfig
from ...configs.section import Place
from ...stores.keys import Json, digest
from ...stores.records import Candidate, FilterCount, Message, Pair, Preference, Prompt
from ...stores.schemas import Row as StoredRow
from ..data.conversations import as_json
from ..data.files import InputError, RowError, file_digest, placed_rows
from ..data.filter_counts import KEPT, filter_counts
from ..data.judged_candidates import TRUSTED
from ..data.pairs import unfit
from ..data.rating_scale import SCALES
from ..data.row_notes import PromptIds
from ..data.splits import TRAIN, UNTRAINED
from ..lake.imports.import_files import detect_format, unfit_pair
from ..lake.imports.import_formats import ANNOTATIONS, FORMATS, ImportFormat
from ..lake.imports.imported_rows import Maker, identity_of
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.reporter import UnitStats
from ..run.run import Verb, Work
from ..run.stage import Stage
from .balance_length import balance_length

TAKE_MIXED = Verb("mixed")
MIX = "mix"
"""The part of a run's fingerprint with the hashes of these files."""
FORMS = ("pairs", "alpacafarm")
"""The formats that compare two answers."""
Tables = dict[type[StoredRow], list[StoredRow]]


def mix_of(config: RunConfig) -> tuple[Path, ...]:
    """Return the files that a run's recipe mixes in."""
    recipe = config.recipe
    return tuple(map(Path, recipe.mix)) if isinstance(recipe, Graded) else ()


def require_mix(files: Sequence[Path], prompts: Iterable[Prompt]) -> None:
    """Read the files to the end, so that unusable rows are reported before a run begins.

    A prompt of the files must not share its id with a different prompt, in the files or in
    `prompts`.

    Raises:
        InputError: for anything that cannot be read as meant.
    """
    ids = PromptIds.apart_from(prompts)
    for path in files:
        decided = sum(decides(made) for made in comparisons(path, 0, ids=ids))
        if not decided:
            raise InputError(f"{path}: holds no decided comparison of two answers to train on")


def mix_digests(files: Sequence[Path]) -> list[Json]:
    """Return the hashes of the files' bytes, with the names that their rows bear."""
    return [[path.name, file_digest(path)] for path in files]


def mix_fingerprint(config: RunConfig) -> Mapping[str, Json]:
    """Return the identity of a run's mixed-in files, which must not change."""
    files = mix_of(config)
    return {MIX: mix_digests(files)} if files else {}


def mix_pairs(it: Iteration, pairs: Rows[Pair], names: Sequence[Place]) -> Rows[Pair]:
    """Return the run's pairs together with the files' pairs; without files, the same handle.

    The files' pairs are spread over as many chunks as the run's pairs have.
    """
    it.require(Graded, "mixed")
    files = [Path(name) for name in names]
    if not files:
        return pairs
    pending = Work(
        verb=TAKE_MIXED,
        params={
            "files": mix_digests(files),
            "read_as": [[name, FORMATS[name].semantics] for name in map(detect_format, files)],
            **taking_params(it),
        },
        upstream=(),
        reads=lambda: [(f"{chunk}/{pairs.chunks}",) for chunk in range(pairs.chunks)],
    )

    def chunks() -> Iterator[Sequence[Sequence[StoredRow]]]:
        size = -(-sum(1 for path in files for _ in placed_rows(path)) // pairs.chunks)
        rows = (made for path in files for made in comparisons(path, it.number))
        return (list(islice(rows, size)) for _ in range(pairs.chunks))

    taking = Taking(iteration=it.number, prompts=it.run.prompts)
    planned = take_chunks(it, "mixed", pending, taking, chunks)
    return pairs + balance_length(it, Rows(row_type=Pair, stages=(planned,)))


def take_chunks(
    it: Iteration,
    label: str,
    pending: Work,
    taking: "Taking",
    chunks: Callable[[], Iterable[Sequence[Sequence[StoredRow]]]],
) -> Planned:
    """Run a stage that takes comparisons chunk by chunk; pairs or votes are counted.

    Not `Run.make`: which rows a chunk takes depends on the chunks before it.
    """

    def run_units(stage: Stage) -> None:
        units = {unit.chunk: unit for unit in stage.pending}
        for chunk, made in enumerate(chunks()):
            stage.flow.admit()
            tables = taking.take(made)
            if chunk in units:
                counted = tables[Preference if taking.votes else Pair]
                stage.commit(units[chunk], tables, UnitStats(rows=len(counted)))

    return it.run.run_stage(it.number, label, pending, run_units)


def taking_params(it: Iteration) -> dict[str, Json]:
    """Return the parameters by which a run's prompts decide which rows of files are taken."""
    measuring = [p for p in it.run.prompts.values() if p.split != TRAIN]
    return {
        "known": digest(sorted(it.run.prompts)),
        "held_out": digest([as_json(prompt.messages) for prompt in measuring]),
    }


@dataclass(slots=True, kw_only=True)
class Taking:
    """Taking the rows of files into a run: each once, and none about a dev or held-out prompt.

    `prompts` are the run's, by id; filter counts are named `called`. With `votes`, votes are taken
    instead of pairs: a row is a duplicate only if all of its votes are, its pair need not be
    decided, and prompts that the row itself marks as held out are skipped, too.
    """

    iteration: int
    prompts: Mapping[str, Prompt]
    votes: bool = False
    called: str = MIX
    _measuring: dict[tuple[Message, ...], str] = field(init=False)
    _seen: set[tuple[type[StoredRow], str]] = field(
        default_factory=set[tuple[type[StoredRow], str]], init=False
    )

    def __post_init__(self) -> None:
        measured = (prompt for prompt in self.prompts.values() if prompt.split != TRAIN)
        self._measuring = {prompt.messages: UNTRAINED[prompt.split] for prompt in measured}

    def take(self, made: Sequence[Sequence[StoredRow]]) -> Tables:
        """Return rows of comparisons by type, with filter counts."""
        tables: Tables = {Prompt: [], Candidate: [], Preference: []} if self.votes else {Pair: []}
        fates = dict[str, list[str]]()
        for rows in map(_with_scores, made) if self.votes else made:
            fate, name = self._fate(rows)
            fates.setdefault(fate, []).append(name)
            for row in rows if fate == KEPT else ():
                if self._is_new(row) and not (self.votes and isinstance(row, Pair)):
                    tables.setdefault(type(row), []).append(row)
        tables[FilterCount] = list(filter_counts(self.iteration, self.called, "pairs", fates))
        return tables

    def _fate(self, rows: Sequence[StoredRow]) -> tuple[str, str]:
        """Return the fate of a comparison, and an id by which it can be found."""
        prompt = prompt_of(rows)
        pair = _pair_in(rows)
        own = UNTRAINED.get(prompt.split) if self.votes else None
        if measured := self._measuring.get(prompt.messages) or own:
            return measured, prompt.prompt_id
        if reason := unfit(row.text for row in rows if isinstance(row, Candidate)):
            return reason, prompt.prompt_id
        chosen, rejected = (pair.chosen_reward, pair.rejected_reward) if pair else (None, None)
        is_tied = chosen is not None and rejected is not None and chosen <= rejected
        if pair is None or is_tied:
            return "undecided", prompt.prompt_id
        sources = [row for row in rows if self.votes and isinstance(row, Preference)] or [pair]
        if all((type(row), identity_of(row)) in self._seen for row in sources):
            return "repeated", pair.pair_id
        return KEPT, pair.pair_id

    def _is_new(self, row: StoredRow) -> bool:
        key = type(row), identity_of(row)
        new = key not in self._seen and not (
            isinstance(row, Prompt) and row.prompt_id in self.prompts
        )
        self._seen.add(key)
        return new


def comparisons(
    path: Path, iteration: int, *, ids: PromptIds | None = None
) -> Iterator[list[StoredRow]]:
    """Give the stored rows of each row of a file, with the pair that its votes decide.

    With `ids`, none of its prompts may have the id of another one.

    Raises:
        InputError: for anything that cannot be read as meant.
    """
    form = comparing_format(path)
    make = Maker(source=path.name, scale=SCALES[form.scale], task=None, iteration=iteration)
    for place, row in placed_rows(path):
        try:
            made = list(form.read(row, make))
            if ids is not None:
                ids.is_new(row, prompt_of(made), path, place)
        except RowError as error:
            raise InputError(f"{path}, {place}: {error}") from error
        yield [*made, *majority_pairs(made, make)]


def comparing_format(path: Path) -> ImportFormat:
    """Return the format of a file, whose rows must compare two answers.

    Raises:
        InputError: if they do not.
    """
    name = detect_format(path)
    if name not in FORMS:
        what = "annotations of a run" if name == ANNOTATIONS else f"rows of {name}"
        raise InputError(
            f"{path}: holds {what}, which do not compare two answers; name a file with rows of "
            f"{', '.join(FORMS)}"
        )
    return FORMATS[name]


def _with_scores(rows: Sequence[StoredRow]) -> Sequence[StoredRow]:
    """Return a comparison, each vote of which has the scores that the pair's source gives."""
    pair = _pair_in(rows)
    if pair is None or pair.chosen_reward is None or pair.rejected_reward is None:
        return rows
    given = {pair.chosen_id: pair.chosen_reward, pair.rejected_id: pair.rejected_reward}
    return [
        replace(row, first_score=given.get(row.first_id), second_score=given.get(row.second_id))
        if isinstance(row, Preference)
        else row
        for row in rows
    ]


def prompt_of(rows: Sequence[StoredRow]) -> Prompt:
    """Return the prompt of a comparison."""
    return next(row for row in rows if isinstance(row, Prompt))


def _pair_in(rows: Sequence[StoredRow]) -> Pair | None:
    return next((row for row in rows if isinstance(row, Pair)), None)


def decides(rows: Sequence[StoredRow]) -> bool:
    """Whether a comparison has a pair that can be trained on."""
    return _pair_in(rows) is not None and unfit_pair(rows) is None


def majority_pairs(made: Sequence[StoredRow], make: Maker) -> Iterator[Pair]:
    """Give the pair that the majority of votes (people's, if any) decides.

    Nothing is given if the row brings a pair.
    """
    every = [row for row in made if isinstance(row, Preference)]
    votes = [vote for vote in every if vote.annotator.startswith(TRUSTED)] or every
    if not votes or _pair_in(made) is not None:
        return
    balance = sum({"first": 1, "second": -1}.get(vote.preferred or "", 0) for vote in votes)
    if not balance:
        return
    candidates = {row.candidate_id: row for row in made if isinstance(row, Candidate)}
    sides = candidates[votes[0].first_id], candidates[votes[0].second_id]
    chosen, rejected = sides if balance > 0 else sides[::-1]
    yield make.pair(prompt_of(made), chosen, rejected, (None, None))
