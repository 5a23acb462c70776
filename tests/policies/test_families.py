"""Models of the families that people have on their disks, as they lie there."""

import pytest
from families import FAMILIES, PROMPTS, answers, asked

from lpfloop.configs.schema import EngineConfig
from lpfloop.policies.engines.engine import Batch, Completion, Request, Sampling
from lpfloop.policies.engines.transformers_engine import TransformersEngine
from lpfloop.stores.records import Message

pytestmark = pytest.mark.model

ORDINARY = ("gemma-2",)
"""Families of the ordinary suite; each of the others takes as long."""
CHATS = tuple(name for name, family in FAMILIES.items() if family.template)


def each(names):
    """Parametrise over families, slow but for those of the ordinary suite."""
    return [
        name if name in ORDINARY else pytest.param(name, marks=pytest.mark.slow) for name in names
    ]


def drawn(engine) -> list[Completion]:
    requests = [
        Request(request_id=str(i), messages=(Message(role="user", content=asked(row)),), seed=i)
        for i, row in enumerate(PROMPTS)
    ]
    sampling = Sampling(temperature=1.0, top_p=1.0, max_tokens=48)
    (result,) = engine.generate([Batch(key="a", requests=tuple(requests), sampling=sampling)])
    return list(result.completions)


@pytest.mark.parametrize("name", each(CHATS))
def test_a_stand_in_ends_what_it_says_and_is_right_at_times(family, name) -> None:
    engine = TransformersEngine(str(family(name)), EngineConfig(kind="transformers"))
    said = drawn(engine)
    engine.close()
    assert sum(c.finish_reason == "stop" for c in said) > 0.9 * len(said)
    for kind in (0, 1):
        both = zip(said, PROMPTS, strict=True)
        like = [c.text.strip().endswith(answers(row)[kind]) for c, row in both]
        assert 3 <= sum(like) < len(said)
