"""Critique distillation: answer x as the policy does when it sees (x, y~, f(x, y~))."""

from ...configs.recipes import CritiqueDistillation
from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from ..stages.critique import critique
from ..stages.distil import distil
from ..stages.refine import best, refine
from ..stages.reward import reward
from ..stages.sample import sample
from ..stages.train import train
from ..stages.variance_filter import varied
from .trial_settings import TrialSettings, rates

PAPER = "context distillation (Snell et al., 2022)"
SUMMARY = "refine the promising draft, learn to answer so without draft and critique"
TRIALS = (*rates("distil"), TrialSettings(times={"training.distil.epochs": 2.0}))


def critique_distillation(it: Iteration, cfg: CritiqueDistillation) -> Checkpoint:
    """Bring pi(. | x) near pi(. | x, y~, f(x, y~)), over the tokens of its own refinements."""
    prompts = varied(it, it.prompts(), None)
    drafts = sample(it, prompts, n=cfg.n)  # y_i ~ pi(x)
    feedback = critique(it, drafts)  # f(x, y_i)
    promising = best(drafts, by=reward(it, drafts))  # y~ = argmax r(x, y)
    refined = refine(  # z_j ~ pi(x, y~, f(x, y~))
        it, promising, feedback, m=cfg.m, which=cfg.refine
    )
    said = critique(it, refined) if cfg.learn == "passed" else None  # f(x, z_j)
    return train(it, distil(it, refined, drafts, feedback, said=said))
