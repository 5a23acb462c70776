"""Demands on an answer as a whole: IFEval's `combination`, `startend` and `punctuation`."""


def is_two_responses(answer: str) -> bool:
    """Whether ****** separates exactly two responses, which differ."""
    parts = [part.strip() for part in answer.split("******")]
    match [part for part in parts if part]:
        case [first, second]:
            return first != second and all(parts[1:-1])
        case _:
            return False


def repeats_prompt(answer: str, *, prompt_to_repeat: str) -> bool:
    """Whether the answer begins with the request; case does not matter."""
    return answer.strip().lower().startswith(prompt_to_repeat.strip().lower())


def ends_with_phrase(answer: str, *, end_phrase: str) -> bool:
    """Whether the answer, without quotation marks around it, ends with the phrase."""
    return answer.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def is_quoted(answer: str) -> bool:
    """Whether the whole answer is in double quotation marks."""
    text = answer.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def has_no_comma(answer: str) -> bool:
    """Whether the answer is free of commas."""
    return "," not in answer
