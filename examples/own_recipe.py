"""Own recipe: your method in verbs, with a setting for it.

Run it: `python examples/own_recipe.py`. It draws answers, rates them with the shipped verifier,
pairs each prompt's right answers with wrong ones, and trains the tiny policy on the pairs.
docs/python.md lists the verbs.
"""

import lpfloop
from lpfloop.parts import (
    Checkpoint,
    Iteration,
    JudgedRows,
    Recipe,
    critique,
    pair,
    reward,
    sample,
    semantic,
    train,
)


class RightOverWrong(Recipe):
    """The settings of the recipe."""

    n: int = semantic(6, "answers a prompt", ge=2)
    pairs_each: int = semantic(2, "pairs a prompt", ge=1)


def right_over_wrong(it: Iteration, cfg: RightOverWrong) -> Checkpoint:
    """Prefer each prompt's right answers to its wrong ones."""
    drafts = sample(it, it.prompts(), n=cfg.n)
    judged = JudgedRows(
        candidates=drafts, critiques=critique(it, drafts), rewards=reward(it, drafts)
    )
    return train(it, pair(it, judged, rule="success_vs_failure", top_k=cfg.pairs_each))


def main() -> None:
    settings = {
        "recipe.pairs_each": 1,
        "critic.kind": "verifier",
        "policy.engine.kind": "transformers",
        "reward.model": "none",
        "assessment.kl": False,
        "prompts.per_iteration": 48,
        "prompts.max_test": 24,
        "prompts.max_dev": 24,
        "training.min_pairs": 4,
    }
    recipe = f"{__file__}:right_over_wrong"
    run = lpfloop.run("tiny", recipe=recipe, iterations=1, name="own-recipe", set=settings)
    print(run.summary())
    print(run.pairs(task="math", limit=3).collect())


if __name__ == "__main__":
    main()
