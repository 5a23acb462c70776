"""M_0 and the critic in one training: answers, reflections and critiques (RLRF, Table 1)."""

from ...configs.recipes import ReflectiveSFT
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.critique import critique, critique_unverifiable, verify
from ..stages.data_mixture import weigh
from ..stages.lessons import (
    CRITIQUED,
    CRITIQUED_WITH_REFERENCE,
    REFLECTED,
    demonstrate_critiques,
    demonstrate_reflections,
)
from ..stages.refine import revise
from ..stages.sample import sample
from ..stages.supervised_set import PEOPLE, demonstrations
from ..stages.train import train

PAPER = "RLRF (Lee et al., 2024)"
SUMMARY = "one fine-tuning on answers, reflections and critiques: M_0, and a critic for --critic"


def reflective_sft(it: Iteration, cfg: ReflectiveSFT) -> Checkpoint:
    """SFT on demonstrations, and on a teacher's critiques of the base model's answers (App. C)."""
    drafts = sample(it, it.first(cfg.drafted), n=cfg.n)
    feedback = critique(it, drafts)  # f(x, y), f(x, y, reference)
    lessons = [
        demonstrations(it, it.prompts()),  # x -> y
        demonstrate_critiques(it, drafts, feedback, by_reference=True),
    ]
    if cfg.weights.reflection:
        shown = it.first(cfg.drafted * cfg.revised)
        revised = revise(it, drafts, feedback, of=shown, which=cfg.refine)  # (x, y, f) -> y~
        verdicts = verify(it, revised) + critique_unverifiable(it, revised)
        lessons.append(demonstrate_reflections(it, drafts, feedback, revised, verdicts))
    weights = {
        PEOPLE: cfg.weights.answer,
        REFLECTED: cfg.weights.reflection,
        CRITIQUED: cfg.weights.critique,
        CRITIQUED_WITH_REFERENCE: cfg.weights.critique_with_reference,
    }
    return train(it, weigh(it, lessons, weights))
