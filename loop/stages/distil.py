"""What critique distillation learns: refinements, each with the prompt that its teacher saw."""

import polars as pl

from ...stores.frames import as_arrow, empty
from ...stores.journal_reader import Unit
from ...stores.keys import Json
from ...stores.records import Candidate, Critique, Distillation, Yield
from ...stores.schemas import RowsByType
from ..data.distillations import PASSED, REFINED, Refinements, distillations
from ..data.judged_candidates import Deciding, judge, verdicts
from ..data.training_rows import Origin
from ..run.handles import Rows
from ..run.iteration import Iteration
from ..run.run import Verb
from .refine import reflection

DISTIL = Verb("distil")


def distil(
    it: Iteration,
    refined: Rows[Candidate],
    drafts: Rows[Candidate],
    critiques: Rows[Critique],
    *,
    said: Rows[Critique] | None = None,
) -> Rows[Distillation]:
    """(x, y~, f) -> z, to be learned as x -> z: commit the refinements with both prompts.

    Without `said`, the verdicts on the refinements, all whole ones are learned; else those that the
    critic passes.
    """
    rule = REFINED if said is None else PASSED
    by = Origin(rule=rule, iteration=it.number)
    deciding = Deciding.of(it.run.config.model_dump(include={"critic"}))

    def make(unit: Unit) -> RowsByType:
        before = it.chunk(drafts, unit.chunk)
        prompts = [it.run.prompts[x] for x in dict.fromkeys(draft.prompt_id for draft in before)]
        written = it.chunk(refined, unit.chunk)
        texts = {draft.candidate_id: draft for draft in before}
        feedback = {c.critique_id: c for c in it.chunk(critiques, unit.chunk)}
        shown = {
            z.candidate_id: reflection(it, texts[str(z.parent_id)], feedback[str(z.critique_id)])
            for z in written
        }
        found = Refinements(candidates=written, shown=shown, judged=judged(unit.chunk))
        made = distillations(found, prompts, by)
        return {Distillation: as_arrow(made.rows), Yield: as_arrow(made.yields)}

    def judged(chunk: int) -> pl.DataFrame:
        verdict = None if said is None else verdicts(it.frame(said, chunk), deciding)
        frame = judge(it.frame(refined, chunk), empty("rewards"), verdict)
        if said is None:
            return frame.with_columns(rated="usable", learned="usable")
        return frame.with_columns(
            rated=pl.col("usable") & (pl.col("success") | pl.col("failure")),
            learned=pl.col("usable") & pl.col("success"),
        )

    # The critic's templates decide what the teacher saw.
    params: Json = {"rule": rule, "critic": it.run.critic.digest, "agreement": deciding.agreement}
    handles = (refined, drafts, critiques)
    work = it.work(DISTIL, params, *handles, *(() if said is None else (said,)))
    return it.rows(Distillation, DISTIL.name, work, make)
