"""Scripted graders: they read the texts of a question, and answer in the form asked for."""

import re

from lpfloop.policies.engines.engine import Request, Sampling

TEXT = re.compile(r'<text number="(\d+)">(.*?)</text>', re.DOTALL)
ANSWER = re.compile(r"<answer>\s*(.*?)\s*</answer>", re.DOTALL)


def rating_of(text: str, best: int) -> int:
    """Return a rating that the text alone decides: by its last figure, 0 if it has none."""
    return 1 + int(re.findall(r"\d", f"0{text}")[-1]) % best


def by_figure(request: Request, sampling: Sampling) -> str:
    """Rate every text by its last figure."""
    question = request.messages[-1].content
    if "Overall score:" in question:
        (answer,) = ANSWER.findall(question)
        return f"Mind the figure.\nOverall score: {rating_of(answer, 10)}"
    types = "Type: None\n" if "Type:" in question else ""
    return "\n".join(
        f"[Text {number}]\n{types}Rationale: The figure says so.\nRating: {rating_of(text, 5)}"
        for number, text in TEXT.findall(question)
    )


def unsure(request: Request, sampling: Sampling) -> str:
    """Grade like `by_figure`, one time in two without the last line."""
    reply = by_figure(request, sampling)
    return reply if request.seed % 2 else reply.rpartition("\n")[0]


def stammering(request: Request, sampling: Sampling) -> str:
    """Grade like `by_figure`; one first reply in two, which is drawn greedily, lacks its end."""
    reply = by_figure(request, sampling)
    greedy = sampling.temperature == 0
    return reply.rpartition("\n")[0] if greedy and request.seed % 2 else reply


def shy(request: Request, sampling: Sampling) -> str:
    """Grade like `by_figure`, but find that honesty does not apply."""
    question = request.messages[-1].content
    reply = by_figure(request, sampling)
    return re.sub(r"Rating: \d", "Rating: N/A", reply) if "N/A" in question else reply


def silent(request: Request, sampling: Sampling) -> str:
    """Say nothing that can be read."""
    return "That is hard to say."
