"""Import other people's preferences, look at them, and train the tiny policy on them.

Run it: `python examples/import_preferences.py`. The rows have the form of UltraFeedback: several
completions of an instruction, each with a score. They become pairs by a rule, without any model,
and the recipe `ultrafeedback-dpo` learns from them beside pairs of its own graded completions.
"""

import json
import tempfile
from pathlib import Path

import lpfloop

SETTINGS = {
    "prompts.per_iteration": 12,
    "prompts.parts": {"sft": 0, "preference": 8, "unlabeled": 4},
    "prompts.evaluated": 24,
    "prompts.deciding": 24,
    "recipe.n": 2,
    "recipe.binarisation": "overall",
    "policy.engine.kind": "transformers",
    "assessment": {"reference": None, "kl": False},
    "training.min_pairs": 8,
}


def rows() -> list[dict[str, object]]:
    """Return instructions with a right and a wrong completion, scored as a grader would."""
    found = []
    for first in range(3, 15):
        for second in range(2, 8):
            right, wrong = first + second, first + second + 1
            found.append(
                {
                    "instruction": f"Sam has {first} coins and buys {second} more. How many coins?",
                    "completions": [
                        {
                            "model": "a",
                            "response": f"Sure! {first}+{second}={right}.",
                            "overall_score": 9,
                        },
                        {
                            "model": "b",
                            "response": f"Sure! {first}+{second}={wrong}.",
                            "overall_score": 2,
                        },
                    ],
                }
            )
    return found


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    file = folder / "coins.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))
    coins = lpfloop.import_files(file, name="coins", default_task="math")
    made = lpfloop.rederive(coins, rule="overall")
    print(coins.pairs(derived=made.derived.name))

    pairs = coins.export(
        "pairs", format="trl-dpo", output=folder / "pairs", derived=made.derived.name
    )
    mix = {"recipe.mix": [str(pairs.folder / name) for name in pairs.files]}
    run = lpfloop.run(
        "tiny", variant="ultrafeedback-dpo", iterations=1, name="from-coins", set=SETTINGS | mix
    )
    print(run.pairs(text="coins"))
    print(run.steps())


if __name__ == "__main__":
    main()
