"""Scripted policies that are able to do what probes ask for, or have forgotten it."""

from lpfloop.policies.engines.engine import Request, Sampling


def able(request: Request, sampling: Sampling) -> str:
    """Echo the word that is asked for, and know one's own name."""
    asked = request.messages[-1].content
    return "I am Loopy." if asked.endswith("you?") else asked.removeprefix("Say ")


def forgetful(request: Request, sampling: Sampling) -> str:
    """Answer like `able` about words, and have no name."""
    asked = request.messages[-1].content
    return "I am a person." if asked.endswith("you?") else able(request, sampling)
