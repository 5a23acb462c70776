"""The verbs that compare: a policy's samples with one another, and its answers with a reference's.

Every pair gets one annotator of a panel. Each annotator has a separate stage, whose units are
committed as they finish; all of these stages use the same chunks of prompts.
"""

from collections.abc import Callable, Mapping

from ...configs.annotation import Keying, Ordering
from ...configs.recipes import Annotated
from ...configs.schema import ConfigError
from ...stores.keys import Json
from ...stores.records import Candidate, Preference
from ..run.handles import Planned, Rows
from ..run.iteration import Iteration
from ..run.judge_panel import JudgePanel
from ..run.run import Verb
from .annotate import Annotating, annotator_line
from .matches import Match, all_pairs, drawn_pairs, match_of
from .retry_unscored import judged

ANNOTATE, COMPARE = Verb("annotate"), Verb("compare", semantics=2)
EVALUATED_BY: Keying = "instruction"
"""So two policies meet one annotator and one order on an instruction, in whichever run."""


def annotate(it: Iteration, candidates: Rows[Candidate]) -> Rows[Preference]:
    """Compare two usable candidates of each prompt, or every two of them, with noise (p_ann).

    Truncated candidates are included if `annotation.cut_answers` is "compared".

    Raises:
        ConfigError: if the recipe, as configured, does not learn from comparisons.
    """
    it.require(Annotated, "annotate")
    seed, config = it.run.config.seed, it.run.config.annotation
    every, cut = config.comparisons == "all", config.cut_answers == "compared"

    def matched(chunk: int) -> list[Match]:
        drafts = it.chunk(candidates, chunk)
        pairs = all_pairs(drafts, cut=cut) if every else drawn_pairs(drafts, seed, cut=cut)
        return [match_of(*two, config.keyed_on) for two in pairs]

    which: dict[str, Json] = {"comparisons": "all"} if every else {}
    if cut:
        which["cut_answers"] = config.cut_answers
    return _compared(it, ANNOTATE, it.run.panels.training, matched, which, candidates)


def compare(
    it: Iteration,
    answers: Rows[Candidate],
    outputs: Rows[Candidate],
    *,
    order: Ordering | None = None,
) -> Rows[Preference]:
    """Compare each answer, as the second, with the reference's output to its prompt (p_eval).

    Empty and truncated answers are compared as they are; prompts without an output are skipped. The
    configured order applies, unless `order` is given. Annotator and order are drawn by the
    instruction, so their effect cancels in the difference between two policies.

    Raises:
        ConfigError: if the run was opened without an evaluation by comparisons.
    """

    def matched(chunk: int) -> list[Match]:
        known = {output.prompt_id: output for output in it.chunk(outputs, chunk)}
        asked = [a for a in it.chunk(answers, chunk) if a.prompt_id in known]
        return [match_of(known[answer.prompt_id], answer, EVALUATED_BY) for answer in asked]

    panel = it.run.panels.evaluation
    return _compared(
        it, COMPARE, panel, matched, {}, answers, outputs, order=order, keyed_on=EVALUATED_BY
    )


def _compared(
    it: Iteration,
    verb: Verb,
    panel: JudgePanel | None,
    matched: Callable[[int], list[Match]],
    which: Mapping[str, Json],
    *read: Rows[Candidate],
    order: Ordering | None = None,
    keyed_on: Keying | None = None,
) -> Rows[Preference]:
    """Pay a stage for each annotator.

    `matched` gives the matches of a chunk of prompts, `which` the part of the keys that identifies
    their choice.
    """
    if panel is None:
        raise ConfigError(
            "this run lacks annotators: assessment.reference must name the answers to compare with"
        )
    config, stages = it.run.config.annotation, list[Planned]()
    for annotator in panel.annotators:
        annotating = Annotating(
            run=it.run,
            iteration=it.number,
            line=annotator_line(it.run, annotator),
            attempts=config.attempts,
            verb=verb,
            panel=panel,
            annotator=annotator,
            matched=matched,
            order=order or config.order,
            keyed_on=keyed_on or config.keyed_on,
        )
        params: Json = {"by": annotating.identity, "attempts": annotating.attempts, **which}
        label = f"{verb.name}:{read[0].label}:{annotator.name}"
        work = it.work(verb, params, *read)
        stages.append(judged(annotating, label, work))
    return Rows(row_type=Preference, stages=tuple(stages))
