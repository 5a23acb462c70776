"""Own verifier: a function decides which answers are right, and the tiny policy learns from that.

Run it: `python examples/own_verifier.py`. Policy and training are real; the run needs no critic,
since the verifier's ratings make the pairs. docs/customise.md describes a verifier's results.
"""

import lpfloop
from lpfloop.parts import Prompt


def polite(prompt: Prompt, text: str) -> tuple[int, str]:
    """Rate whether an answer begins kindly: 1 for right, -1 for wrong, with a reason."""
    opening = text.split(maxsplit=1)[0].strip(".,!") if text.split() else ""
    if opening in ("Gladly", "Sure"):
        return 1, f"It begins kindly, with {opening}."
    return -1, f"It begins with {opening!r}."


def main() -> None:
    settings = {
        "critic.kind": "verifier",
        "critic.verifier": f"{__file__}:polite",
        "recipe": {"n": 6, "m": 0, "top_k": 2},
        "policy.engine.kind": "transformers",
        "reward.model": "none",
        "assessment.kl": False,
        "prompts.per_iteration": 32,
        "prompts.max_test": 24,
        "prompts.max_dev": 24,
        "training.min_pairs": 8,
        "training.dpo.learning_rate": 3e-4,
    }
    run = lpfloop.run("tiny", iterations=1, name="own-verifier", set=settings)
    print(f"pairs: {run.pairs().collect().height}")
    print(run.verdict())


if __name__ == "__main__":
    main()
