"""The names of the fields that are read, which a file may write in any case."""

from .file_row import Row
from .text_lines import RowError

PROMPT_NAMES = (
    *("messages", "conversations", "turns", "prompt", "question", "problem", "instruction"),
    *("body", "input", "context", "system", "system_prompt", "system_message", "history"),
    *("answer", "solution", "reference", "ques_statement", "numbers", "type", "checks", "task"),
    *("family", "cluster", "split", "part", "source", "prompt_id"),
    *("correct_answers", "incorrect_answers"),
    *("tools", "functions", "image", "images", "audio", "audios", "video", "videos"),
)
ANSWER_NAMES = (
    *("response", "completion", "output", "candidates", "completions", "responses"),
    *("model", "models", "generator", "label", "labels", "correct", "is_correct"),
    *("score", "scores", "reward", "rewards", "ratings", "comments", "critique"),
    *("critic", "judge", "annotator", "category", "subject", "dataset"),
)
PAIR_NAMES = (
    *("chosen", "rejected", "score_chosen", "score_rejected", "chosen_reward", "rejected_reward"),
    *("chosen_model", "rejected_model", "metadata", "output_1", "output_2", "preference"),
    *("response1", "response2", "overall_preference", "candidate_id", "first_id", "second_id"),
)
NAMES = frozenset((*PROMPT_NAMES, *ANSWER_NAMES, *PAIR_NAMES))


def in_known_case(row: Row) -> Row:
    """Return a row whose known fields have their names in lower case; others keep theirs.

    Raises:
        RowError: if one field is there in two cases.
    """
    if not any(name not in NAMES and name.lower() in NAMES for name in row):
        return row
    names = dict[str, str]()
    for own in row:
        name = own.lower() if own.lower() in NAMES else own
        other = names.setdefault(name, own)
        if other != own and row.glance(own) is not None:
            if row.glance(other) is not None:
                raise RowError(f"both {other!r} and {own!r} hold something; keep one")
            names[name] = own
    return row.rename(names)
