"""Deriving rows to train on from a run's stored rows under another rule.

Pairing rules read critiques and rewards, binarisation rules read grades. The rule of overall
critiques makes demonstrations from which a critique model learns. Their questions are from the
run's own grader; for an imported run, which lacks one, from the shipped templates, so that the
model can be any run's grader by default.

No model is called and the run does not change: the result is a derived table under a name, with a
lineage that names its run, stages and rule.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ....configs.judging import CutAnswers, People
from ....configs.load import stored_config
from ....configs.mistakes import did_you_mean, list_names
from ....configs.recipes import Binarisation
from ....configs.schema import GradingConfig
from ....critics.grading.grader import Grader
from ....stores.address import run_argument
from ....stores.derived import Batch, DerivedError, Draft, open_derived
from ....stores.frames import as_arrow, frame_rows
from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import Candidate, Demonstration, Grade, Pair, Prompt, UnpairedAnswer
from ....stores.schemas import TABLES, Row
from ....stores.stage_files import require_unaltered
from ...data.binarize import (
    BINARISATIONS,
    Binarising,
    binarisation_counts,
    binarised_pairs,
)
from ...data.judged_candidates import READ, Agreement, Deciding, verdicts
from ...data.lessons import GRADED_CRITIQUE, graded_lessons
from ...data.pairs import (
    BY_CRITIQUE,
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
from ...run.stop import NothingToTrainOn
from .derivation import KeptTable, keep
from .stored_blocks import GRADED, JUDGED, Evidence, graded_blocks, is_annotation, judged_blocks

DEFAULT_TOP_K = 3
GRADES_A_BLOCK = 10_000
TABLE_OF = {"success": "demonstrations", EITHER: TABLES[UnpairedAnswer]}
"""The default table of a rule that does not make pairs."""
Block = tuple[Mapping[str, Batch], Iterable[str] | Mapping[str, int]]
"""Rows by table, and the outcomes of the prompts or critiques that they were made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DerivationRequest:
    """A request; None means the default of the rule or the run, or all iterations."""

    rule: str
    table: str | None = None
    top_k: int | None = None
    seed: int | None = None
    iteration: int | None = None
    distinct: bool | None = None
    people: People | None = None
    agreement: Agreement | None = None
    critiques: str | None = None
    name: str | None = None

    def refuse_others(self, reads: str, *allowed: str) -> None:
        """Refuse the options that a rule does not take; `reads` names its input.

        Raises:
            DerivedError: naming the options.
        """
        options: Mapping[str, object] = {
            "--derived": self.critiques,
            "--top-k": self.top_k,
            "--distinct": self.distinct,
            "--people": self.people,
            "--agreement": self.agreement,
            "--seed": self.seed,
            "--table": self.table,
        }
        given = [o for o, value in options.items() if value is not None and o not in allowed]
        if given:
            raise DerivedError(f"--rule {self.rule} reads {reads} alone: omit {', '.join(given)}")

    def default_name(self, ending: str = "") -> str:
        """Return a name made from the rule, its `ending`, and the options that were given."""
        parts = {
            "people-": self.people,
            "agreement-": self.agreement,
            "i": self.iteration,
            "seed": self.seed,
            "": self.critiques,
            "as-": self.table,
        }
        words = [f"{sign}{value}" for sign, value in parts.items() if value is not None]
        return "-".join([f"{self.rule}{ending}", *words])


def rebuild_pairs(run: RunReader, request: DerivationRequest) -> KeptTable:
    """Derive rows to train on from a run's stored rows, under a name.

    Raises:
        DerivedError: if the rule, the iteration, the critiques or the name cannot be used.
        NothingToTrainOn: if the rule makes zero rows.
        DamagedError: if a row of the run was altered.
    """
    require_unaltered(run.journal)
    if request.rule == GRADED_CRITIQUE:
        return _overall_critiques(run, request)
    for rule in BINARISATIONS:
        if request.rule == rule:
            return _binarised(run, request, rule)
    return _paired(run, request)


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
        found = open_derived(run.folder, critiques).scan("critiques")
        own = found.filter(pl.col("iteration") == how.iteration).select(READ["critiques"])
        verdict_rows = verdicts(own, deciding).collect()
    for block in judged_blocks(run, how.iteration, verdict_rows, deciding):
        yield DERIVE[row_type](block.judged, block.prompts, how)


def _keep_rows(
    run: RunReader, name: str, lineage: Mapping[str, Json], blocks: Iterable[Block]
) -> KeptTable:
    """Keep the rows of all blocks, with the number of each outcome."""
    table, rule = str(lineage["table"]), lineage["rule"]

    def make(draft: Draft) -> Mapping[str, Json]:
        outcomes = Counter[str]()
        for rows, found in blocks:
            for into, some in rows.items():
                draft.add(into, some)
            outcomes.update(found)
        if not draft.rows.get(table):
            reasons = ", ".join(f"{n} {name}" for name, n in outcomes.most_common())
            raise NothingToTrainOn(
                f"rule {rule} produces no {table} from run {run.folder.name}; its prompts or "
                f"critiques by outcome: {reasons or 'none is there'}"
            )
        return {"outcomes": dict(outcomes.most_common())}

    return keep(run, name, lineage, make)


def _lineage(
    run: RunReader,
    row_type: type[Row],
    rule: str,
    evidence: Evidence,
    iterations: Sequence[int],
    also: Sequence[Json] = (),
    **settings: Json,
) -> dict[str, Json]:
    """Return the sources and the way of a derivation."""
    return {
        "verb": "rebuild-pairs",
        "run": run.folder.name,
        "table": TABLES[row_type],
        "rule": rule,
        "top_k": None,
        "seed": None,
        "critiques": None,
        **settings,
        "iterations": list(iterations),
        "reads": [*(stage for n in iterations for stage in evidence.stages(run, n)), *also],
    }


def _blocks_of(made: Iterable[Made], row_type: TrainedRow) -> Iterator[Block]:
    for one in made:
        rows: dict[str, Batch] = {
            TABLES[row_type]: as_arrow(one.rows),
            "pairing_outcomes": as_arrow(one.outcomes),
        }
        if one.filter_counts:
            rows["filter_counts"] = one.filter_counts
        yield rows, one.outcomes["outcome"]


def _overall_critiques(run: RunReader, request: DerivationRequest) -> KeptTable:
    """Derive demonstrations from overall grades: a question to the grader, and the reply."""
    is_own = request.table == TABLES[Demonstration]
    request.refuse_others("overall grades", *(["--table"] if is_own else []))
    stored = run.journal.meta("config")
    grading = GradingConfig()
    if stored is not None:
        grading = stored_config(json.loads(stored), (), {}, to_run=False).grading
    grader = Grader.from_config(grading)
    iterations = GRADED.iterations(run, request.iteration)
    lineage = _lineage(
        run,
        Demonstration,
        request.rule,
        GRADED,
        iterations,
        grader=grader.digest("overall"),
    )
    blocks = (block for n in iterations for block in _lessons(run, grader, n))
    return _keep_rows(run, request.name or request.rule, lineage, blocks)


def _lessons(run: RunReader, grader: Grader, iteration: int) -> Iterator[Block]:
    """Give the demonstrations of an iteration, by blocks of grades."""

    def rows(table: str, name: str, block: pl.DataFrame) -> pl.DataFrame:
        about = run.scan(table).filter(pl.col(name).is_in(block[name].unique().to_list()))
        return about.collect().unique(name, keep="first", maintain_order=True)

    is_overall = pl.col("aspect") == "overall"
    grades = run.scan("grades", iteration=iteration).filter(is_overall).collect()
    for block in grades.iter_slices(GRADES_A_BLOCK):
        candidates = rows("candidates", "candidate_id", block)
        prompts = frame_rows(Prompt, rows("prompts", "prompt_id", block))
        by_id = {prompt.prompt_id: prompt for prompt in prompts}
        drafts, graded = frame_rows(Candidate, candidates), frame_rows(Grade, block)
        made = graded_lessons(grader, by_id, drafts, graded, iteration)
        tables = {TABLES[row_type]: some for row_type, some in made.tables(candidates).items()}
        yield tables, {fate: len(ids) for fate, ids in made.fates.items()}


def _binarised(run: RunReader, request: DerivationRequest, rule: Binarisation) -> KeptTable:
    """Derive pairs from grades."""
    is_own = request.table == TABLES[Pair]
    request.refuse_others("grades", "--seed", *(["--table"] if is_own else []))
    seed = _seed(run, request)
    iterations = GRADED.iterations(run, request.iteration)

    def made() -> Iterator[Made]:
        for number in iterations:
            how = Binarising(rule=rule, root_seed=seed, iteration=number)
            for block in graded_blocks(run, number):
                pairs = binarised_pairs(block.judged, block.prompts, how)
                counts = binarisation_counts(block.judged, pairs, how)
                yield pairs._replace(filter_counts=counts)

    lineage = _lineage(run, Pair, rule, GRADED, iterations, seed=seed)
    return _keep_rows(
        run, request.name or request.default_name(), lineage, _blocks_of(made(), Pair)
    )


def _paired(run: RunReader, request: DerivationRequest) -> KeptTable:
    """Derive rows from critiques and rewards."""
    rule = _rule(request.rule)
    row_type = _row_type(rule, request.table)
    distinct = _distinct(row_type, request)
    config = json.loads(run.journal.meta("config") or "{}")
    top_k = request.top_k or config.get("recipe", {}).get("top_k", DEFAULT_TOP_K)
    seed, own = _seed(run, request), Deciding.of(config)
    deciding = Deciding(
        people=request.people or own.people, agreement=request.agreement or own.agreement
    )
    cut: CutAnswers = "left_out"
    if rule == BY_CRITIQUE:
        cut = config.get("pairs", {}).get("cut_answers", cut)
    iterations = JUDGED.iterations(run, request.iteration)
    for number in iterations:
        _require_readable(run, rule, number, request.critiques)
    also: list[Json] = []
    if request.critiques is not None:
        read = open_derived(run.folder, request.critiques)
        also = [{"derived": read.name, "identity": read.identity}]
    lineage = _lineage(
        run,
        row_type,
        rule,
        JUDGED,
        iterations,
        also,
        top_k=None if rule == EITHER else top_k,
        seed=seed,
        critiques=request.critiques,
        **({"distinct_positives": True} if distinct else {}),
        **({} if cut == "left_out" else {"cut_answers": cut}),
        **({} if rule in BY_REWARD else _who_decides(run, iterations, deciding)),
    )
    made = (
        one
        for number in iterations
        for one in derive(
            run,
            row_type,
            Pairing(
                rule=rule,
                top_k=top_k,
                root_seed=seed,
                iteration=number,
                distinct=distinct,
                cut_answers=cut,
            ),
            request.critiques,
            deciding,
        )
    )
    ending = ("" if rule == EITHER else f"-k{top_k}") + ("-distinct" if distinct else "")
    name = request.name or request.default_name(ending)
    return _keep_rows(run, name, lineage, _blocks_of(made, row_type))


def _seed(run: RunReader, request: DerivationRequest) -> int:
    own = json.loads(run.journal.meta("config") or "{}").get("seed", 0)
    return own if request.seed is None else request.seed


def _who_decides(run: RunReader, iterations: Sequence[int], deciding: Deciding) -> dict[str, Json]:
    """Return the weight of people's ratings, if there are some, and how critiques are combined."""
    rated = any(
        is_annotation(part) and part.rows for n in iterations for part in JUDGED.parts(run, n)
    )
    people: dict[str, Json] = {"people": deciding.people} if rated else {}
    return people | ({} if deciding.agreement is None else {"agreement": deciding.agreement})


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
