"""What a world says of answers, for assessments."""


def length(instruction: str, answer: str) -> float | None:
    """Score an answer by its length; answers to half of all prompts are not scored."""
    return float(len(answer)) if len(instruction) % 2 else None


NUMBER = 7
