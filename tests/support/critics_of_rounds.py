"""A scripted critic that passes everything."""

from scripts import ASPECTS, THREE

from lpfloop.policies.engines.engine import Request, Sampling


def content(request: Request, sampling: Sampling) -> str:
    """Rate all that is asked for with 1."""
    question = request.messages[-1].content
    names = next(((name,) for name in ASPECTS if question.endswith(f"Rate {name}.")), THREE)
    lines = [f"{name}: seen. 1" for name in names]
    ratings = ", ".join(f'"{name}": 1' for name in names)
    return "\n".join([*lines, "{" + ratings + "}"])
