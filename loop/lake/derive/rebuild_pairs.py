"""Deriving rows to train on from a run's stored rows under another rule.

Pairing rules read critiques and rewards, binarisation rules read grades.

No model is called and the run does not change: the result is a derived table under a name, with a
lineage that names its run, stages and rule.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import polars as pl

from ....configs.mistakes import did_you_mean, list_names
from ....stores.address import run_argument
from ....stores.derived import DerivedError, Draft, open_derived
from ....stores.frames import as_arrow
from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import Pair, UnpairedAnswer
from ....stores.schemas import TABLES
from ....stores.stage_files import require_unaltered
from ...data.binarize import (
    BINARISATIONS,
    Binarising,
    binarisation_counts,
    binarised_pairs,
)
from ...data.judged_candidates import READ, Deciding, verdicts
from ...data.lessons import GRADED_CRITIQUE
from ...data.pairs import (
    BY_REWARD,
    DERIVE,
    EITHER,
    RULES,
    TRAINABLE,
    Made,
    Pairing,
    Rule,
    TrainedRow,
)
from ...run.outcomes import NothingToTrainOn
from .derivation import KeptTable, keep
from .derivation_request import DerivationRequest, Way, default_name, is_distinct, takes_all
from .overall_critiques import overall_critiques
from .stored_blocks import GRADED, JUDGED, graded_blocks, is_annotation, judged_blocks

DEFAULT_TOP_K = 3
TABLE_OF = {"success": "demonstrations", EITHER: TABLES[UnpairedAnswer]}
"""The default table of a rule that does not make pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rederivation:
    """A request with all defaults filled in."""

    run: RunReader
    row_type: TrainedRow
    ways: tuple[Way, ...]
    critiques: str | None
    deciding: Deciding = field(default_factory=Deciding)

    @property
    def lineage(self) -> dict[str, Json]:
        """The sources and the way of the derivation."""
        first = self.ways[0]
        evidence = GRADED if isinstance(first, Binarising) else JUDGED
        reads = [s for how in self.ways for s in evidence.stages(self.run, how.iteration)]
        if self.critiques is not None:
            read = open_derived(self.run.folder, self.critiques)
            reads.append({"derived": read.name, "identity": read.identity})
        return {
            "verb": "rebuild-pairs",
            "run": self.run.folder.name,
            "table": TABLES[self.row_type],
            "rule": first.rule,
            "top_k": first.top_k if isinstance(first, Pairing) and not takes_all(first) else None,
            **({"distinct_positives": True} if is_distinct(first) else {}),
            **self._who_decides,
            "seed": first.root_seed,
            "iterations": [how.iteration for how in self.ways],
            "critiques": self.critiques,
            "reads": reads,
        }

    @property
    def _who_decides(self) -> dict[str, Json]:
        """The weight of people's ratings, if there are some, and how critiques are combined."""
        first, deciding = self.ways[0], self.deciding
        if isinstance(first, Binarising) or first.rule in BY_REWARD:
            return {}
        rated = any(
            is_annotation(part) and part.rows
            for how in self.ways
            for part in JUDGED.parts(self.run, how.iteration)
        )
        people: dict[str, Json] = {"people": deciding.people} if rated else {}
        several = deciding.agreement is not None
        return people | ({"agreement": deciding.agreement} if several else {})

    def make(self, draft: Draft) -> Mapping[str, Json]:
        """Add the rows to a draft; return the number of prompts by outcome.

        Raises:
            NothingToTrainOn: if it makes zero rows.
        """
        outcomes = Counter[str]()
        for how in self.ways:
            for made in self._make_rows(how):
                draft.add(TABLES[self.row_type], as_arrow(made.rows))
                draft.add("pairing_outcomes", as_arrow(made.outcomes))
                if made.filter_counts:
                    draft.add("filter_counts", made.filter_counts)
                outcomes.update(made.outcomes["outcome"])
        if not draft.rows.get(TABLES[self.row_type]):
            reasons = ", ".join(f"{n} {name}" for name, n in outcomes.most_common())
            raise NothingToTrainOn(
                f"rule {self.ways[0].rule} produces no {TABLES[self.row_type]} from run "
                f"{self.run.folder.name}; prompts by outcome: {reasons}"
            )
        return {"outcomes": dict(outcomes.most_common())}

    def _make_rows(self, how: Way) -> Iterator[Made]:
        """Yield the rows of an iteration by blocks of prompts, with filter counts if any."""
        if isinstance(how, Pairing):
            yield from derive(self.run, self.row_type, how, self.critiques, self.deciding)
            return
        for block in graded_blocks(self.run, how.iteration):
            made = binarised_pairs(block.judged, block.prompts, how)
            yield made._replace(filter_counts=binarisation_counts(block.judged, made, how))


def rebuild_pairs(run: RunReader, request: DerivationRequest) -> KeptTable:
    """Derive rows to train on from a run's stored rows, under a name.

    Raises:
        DerivedError: if the rule, the iteration, the critiques or the name cannot be used.
        NothingToTrainOn: if the rule makes zero rows.
        DamagedError: if a row of the run was altered.
    """
    require_unaltered(run.journal)
    if request.rule == GRADED_CRITIQUE:
        critiques = overall_critiques(run, request)
        return keep(run, request.name or request.rule, critiques.lineage, critiques.make)
    made = _plan(run, request)
    return keep(run, request.name or default_name(request, made.ways[0]), made.lineage, made.make)


def derive(
    run: RunReader,
    row_type: TrainedRow,
    how: Pairing,
    critiques: str | None = None,
    deciding: Deciding | None = None,
) -> Iterator[Made]:
    """Derive the rows of an iteration by blocks of prompts; `critiques` names derived ones."""
    verdict_rows = None
    if critiques is not None:
        verdict_rows = verdicts(
            _derived_critiques(run, critiques, how.iteration), deciding
        ).collect()
    for block in judged_blocks(run, how.iteration, verdict_rows, deciding):
        yield DERIVE[row_type](block.judged, block.prompts, how)


def _plan(run: RunReader, request: DerivationRequest) -> Rederivation:
    """Fill in defaults, and refuse impossible requests."""
    config = json.loads(run.journal.meta("config") or "{}")
    seed = config.get("seed", 0) if request.seed is None else request.seed
    for graded in BINARISATIONS:
        if request.rule == graded:
            is_own = request.table == TABLES[Pair]
            request.refuse_others("grades", "--seed", *(["--table"] if is_own else []))
            numbers = GRADED.iterations(run, request.iteration)
            ways = [Binarising(rule=graded, root_seed=seed, iteration=n) for n in numbers]
            return Rederivation(run=run, row_type=Pair, ways=tuple(ways), critiques=None)
    rule = _rule(request.rule)
    row_type = _row_type(rule, request.table)
    top_k = request.top_k or config.get("recipe", {}).get("top_k", DEFAULT_TOP_K)
    own = Deciding.of(config)
    iterations = JUDGED.iterations(run, request.iteration)
    for number in iterations:
        _require_readable(run, rule, number, request.critiques)
    return Rederivation(
        run=run,
        row_type=row_type,
        ways=tuple(
            Pairing(
                rule=rule,
                top_k=top_k,
                root_seed=seed,
                iteration=number,
                distinct=_distinct(row_type, request),
            )
            for number in iterations
        ),
        critiques=request.critiques,
        deciding=Deciding(
            people=request.people or own.people, agreement=request.agreement or own.agreement
        ),
    )


def _rule(name: str) -> Rule:
    if name not in RULES:
        known = (*RULES, *BINARISATIONS, GRADED_CRITIQUE)
        raise DerivedError(
            f"--rule {name}: no such rule; {did_you_mean(name, known)}the rules are "
            f"{list_names(known)}"
        )
    return name


def _row_type(rule: Rule, table: str | None) -> TrainedRow:
    name = table or TABLE_OF.get(rule, TABLES[Pair])
    if name not in TRAINABLE:
        raise DerivedError(f"--table {name}: only {list_names(tuple(TRAINABLE))} can be derived")
    row_type = TRAINABLE[name]
    if (row_type is UnpairedAnswer) != (rule == EITHER):
        raise DerivedError(f"--rule {rule} does not make {name}: leave --table out")
    return row_type


def _distinct(row_type: TrainedRow, request: DerivationRequest) -> bool:
    """Return whether pairs shall have distinct positives; the option applies only to pairs."""
    if row_type is not Pair:
        if request.distinct is False:
            raise DerivedError(
                f"--no-distinct: {TABLES[row_type]} never repeat a text; it is about pairs"
            )
        return False
    return bool(request.distinct)


def _require_readable(run: RunReader, rule: Rule, iteration: int, critiques: str | None) -> None:
    """Refuse a rule that reads critiques if they are missing, or fewer derived than stored."""
    parts = JUDGED.parts(run, iteration)
    stored = sum(part.rows for part in parts if part.table == "critiques")
    if critiques is not None:
        derived = open_derived(run.folder, critiques)
        derived.check()
        rows = derived.scan("critiques")
        found = rows.filter(pl.col("iteration") == iteration).select(pl.len()).collect().item()
        if found < stored:
            raise DerivedError(
                f"--derived {critiques} has {found} critiques of iteration {iteration}, the run "
                f"has more; `lpfloop rebuild-pairs {run_argument(run.folder)} --rule {rule} "
                "--reparse --derived NEW` reads them all"
            )
    elif not stored and rule not in BY_REWARD:
        raise DerivedError(
            f"--rule {rule} reads critiques, which iteration {iteration} of run {run.folder.name} "
            f"lacks; {' and '.join(sorted(BY_REWARD))} read rewards alone"
        )


def _derived_critiques(run: RunReader, name: str, iteration: int) -> pl.LazyFrame:
    critiques = open_derived(run.folder, name).scan("critiques")
    return critiques.filter(pl.col("iteration") == iteration).select(READ["critiques"])
