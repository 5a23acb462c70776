"""Import other people's preferences, look at them, and train the tiny policy on them.

Run it: `python examples/import_preferences.py`. The rows have the form of UltraFeedback: several
completions of an instruction, each with a score. A rule turns them into pairs, without any model,
and the policy learns from these by DPO. lpfloop measures its answers to the held-out prompts.
"""

import json
import tempfile
from pathlib import Path

import lpfloop

SETTINGS = {
    "prompts.source": "none",  # the pairs' prompts; a share is held out
    "prompts.max_test": 12,
    "prompts.max_dev": 12,
    "policy.engine.kind": "transformers",
    "smoke.prompts": 0,
    "assessment": {"kl": False, "oracle": None},
    "training.min_pairs": 8,
}


def rows() -> list[dict[str, object]]:
    """Return instructions with a right and a wrong completion, scored like a grader would."""
    found = []
    for first in range(3, 15):
        for second in range(2, 8):
            right, wrong = first + second, first + second + 1
            found.append(
                {
                    "instruction": f"Sam has {first} coins and buys {second} more. How many coins?",
                    "correct_answers": [str(right)],
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
    folder = Path(tempfile.gettempdir()) / "lpfloop-coins"  # kept for a second run
    folder.mkdir(exist_ok=True)
    file = folder / "coins.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows()))
    coins = lpfloop.import_files(file, name="coins", default_task="math")
    made = lpfloop.rebuild_pairs(coins, rule="overall")
    print(f"pairs: {coins.pairs(derived=made.derived.name).collect().height} rows")

    run = lpfloop.train(
        coins,
        derived=made.derived.name,
        config="tiny",
        policy="tiny",
        name="from-coins",
        set=SETTINGS,
    )
    pair = run.pairs(text="coins").head(1).collect().row(0, named=True)
    print(pair["prompt"][-1]["content"], pair["chosen"], pair["rejected"], sep="\n")
    print(run.sql("select step, value as loss from statistics where metric = 'loss' order by step"))


if __name__ == "__main__":
    main()
