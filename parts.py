"""What a recipe, a verifier or a reward function of your own is made of, by stable names.

Where the modules behind these names lie may change; docs/customise.md shows how to use them.
"""

from .configs.recipes import Annotated, Graded, Grouped, Ranked, Recipe, Rewarded, Varied
from .configs.section import Section, cosmetic, semantic
from .loop.recipes.annotated_pairs import annotate_pairs, reward_samples, surrogate
from .loop.recipes.graded_pairs import graded_pairs, graded_reward
from .loop.run.handles import JudgedRows, Prompts, Rows
from .loop.run.iteration import Iteration
from .loop.stages.compare import annotate
from .loop.stages.complete import complete
from .loop.stages.critique import critique
from .loop.stages.grade import grade, grade_overall
from .loop.stages.mix import mix_pairs
from .loop.stages.online_rl import train_grpo, train_online_dpo, train_ppo, train_rloo
from .loop.stages.pair import binarise, demonstrate, pair, unpair
from .loop.stages.prefer import demonstrate_preferred, prefer
from .loop.stages.refine import best, refine
from .loop.stages.reward import reward
from .loop.stages.sample import sample
from .loop.stages.select_prompts import filter_variance
from .loop.stages.supervised_set import demonstrations
from .loop.stages.train import keep_policy, train, train_reward
from .stores.records import Candidate, Checkpoint, Message, Prompt, RewardModel

__all__ = [
    "Annotated",
    "Candidate",
    "Checkpoint",
    "Graded",
    "Grouped",
    "Iteration",
    "JudgedRows",
    "Message",
    "Prompt",
    "Prompts",
    "Ranked",
    "Recipe",
    "RewardModel",
    "Rewarded",
    "Rows",
    "Section",
    "Varied",
    "annotate",
    "annotate_pairs",
    "best",
    "binarise",
    "complete",
    "cosmetic",
    "critique",
    "demonstrate",
    "demonstrate_preferred",
    "demonstrations",
    "filter_variance",
    "grade",
    "grade_overall",
    "graded_pairs",
    "graded_reward",
    "keep_policy",
    "mix_pairs",
    "pair",
    "prefer",
    "refine",
    "reward",
    "reward_samples",
    "sample",
    "semantic",
    "surrogate",
    "train",
    "train_grpo",
    "train_online_dpo",
    "train_ppo",
    "train_reward",
    "train_rloo",
    "unpair",
]
