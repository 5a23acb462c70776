"""IFEval's responses, through the checks, and FActScore's biographies, through the aggregation."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from lpfloop.critics.checks import fulfils
from lpfloop.critics.facts.fact_score import FACT_SCORE, fact_metrics
from lpfloop.loop.data.prompt_rows import to_prompt
from lpfloop.stores.records import SCORED, Support

from .study import Disagreement, Found, Study, counts, rows_of, share

LABELS: Mapping[str, Support] = {"S": "supported", "NS": "not_supported", "IR": "irrelevant"}


def _ifeval(folder: Path) -> Found:
    found, families, whole, prompts = Found(), Counter[str](), 0, Counter[bool]()
    for row in rows_of(folder / "ifeval_gpt4.jsonl"):
        labels = cast("list[bool]", row["follow_instruction_list_strict"])
        response = str(row["response"])
        checks = to_prompt(row, task=None, split="held-out", source="ifeval").checks
        met = [fulfils(response, check) for check in checks]
        prompts[all(met)] += 1
        for check, ours, label in zip(checks, met, labels, strict=True):
            whole += 1
            families[check.kind] += 1
            if ours != label:
                found.disagreements.append(
                    Disagreement(
                        place=f"{row['key']}, {check.kind} {check.argument}",
                        published=str(label),
                        ours=str(ours),
                        text=response,
                    )
                )
    found.figures = {
        "agrees with the label": share(whole - len(found.disagreements), whole),
        "families": f"{len(families)}: {counts(families)}",
        "prompts with all instructions followed": share(prompts[True], prompts.total()),
    }
    return found


def _labelled(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the fact metrics by people's labels of a biography.

    A sentence that is irrelevant as a whole counts as one irrelevant statement, as in the paper.
    """
    passages, claims = list[tuple[str, int]](), list[tuple[Support | None, str]]()
    for sentence in row["annotations"] or ():
        facts = sentence["human-atomic-facts"]
        labels = [LABELS[fact["label"]] for fact in facts or ()]
        if facts is None and sentence["is-relevant"] is False:
            labels = ["irrelevant"]
        passages.append((SCORED, len(labels)))
        claims += [(label, SCORED) for label in labels]
    return dict(fact_metrics(passages or [(SCORED, 0)], claims))


def _biographies(folder: Path) -> Found:
    labels, scores, abstained = Counter[str](), list[float](), 0
    for row in rows_of(folder / "factscore_InstructGPT.jsonl"):
        metrics = _labelled(row)
        labels.update({name: int(metrics.get(f"facts_{name}", 0)) for name in LABELS.values()})
        abstained += int(metrics["abstained"])
        if FACT_SCORE in metrics:
            scores.append(metrics[FACT_SCORE])
    return Found(
        figures={
            "statements by people's label": counts(labels),
            "fact_score by people's labels": f"{fmean(scores):.4f} over {len(scores)} answers",
            "abstained": f"{abstained}",
        }
    )


INSTRUCTIONS: Mapping[str, Study] = {
    "ifeval": Study(
        through="the checks of 25 families, against the published labels", find=_ifeval
    ),
    "factscore": Study(
        through="the aggregation of people's labels (42.5 % in the paper)", find=_biographies
    ),
}
