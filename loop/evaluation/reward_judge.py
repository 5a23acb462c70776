"""A reward model as a judge: of two answers it prefers the one with the higher score."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ...configs.schema import RewardConfig
from ...policies.engines.engine import ScoreBatch, ScoreRequest
from ...policies.workers.engine_factory import open_scorer
from ...stores.records import Message, Preferred
from .judgments import JudgedOutput, Judgment

NAME = "reward model"
Conversation = tuple[Message, ...]


def reward_judgments(
    given: Sequence[Judgment], config: RewardConfig, folder: Path
) -> Iterator[Judgment]:
    """Yield the judgment of the reward model in `folder` on each pair that others judged.

    Equal scores are a tie. A pair is unread if an answer is too long to be scored.

    Raises:
        EngineError: if it is not a reward model, or cannot be run.
    """
    pairs = {
        (j.messages, *sorted((j.first.key, j.second.key))): j
        for j in given
        if j.first.key != j.second.key and None not in (j.first.text, j.second.text)
    }
    sides = [(_conversation(j, j.first), _conversation(j, j.second)) for j in pairs.values()]
    scores = _scores(config, folder, list(dict.fromkeys(one for both in sides for one in both)))
    for judgment, (first, second) in zip(pairs.values(), sides, strict=True):
        preferred = _preferred(scores[first], scores[second])
        yield replace(
            judgment, annotator=NAME, human=False, preferred=preferred, shown=None, price=None
        )


def _preferred(first: float | None, second: float | None) -> Preferred | None:
    if first is None or second is None:
        return None
    return "tie" if first == second else "first" if first > second else "second"


def _conversation(judgment: Judgment, answer: JudgedOutput) -> Conversation:
    return (*judgment.messages, Message(role="assistant", content=answer.text or ""))


def _scores(
    config: RewardConfig, folder: Path, conversations: Sequence[Conversation]
) -> dict[Conversation, float | None]:
    with TemporaryDirectory() as work:
        scorer = open_scorer(folder, config, log=Path(work) / "reward.log")
        try:
            found = {
                result.key: result.answers
                for result in scorer.score(_batches(conversations, config.batch_size))
            }
        finally:
            scorer.close()
    flat = [score for number in range(len(found)) for score in found[str(number)]]
    return dict(zip(conversations, flat, strict=True))


def _batches(conversations: Sequence[Conversation], size: int) -> Iterator[ScoreBatch]:
    for number, start in enumerate(range(0, len(conversations), size)):
        requests = [
            ScoreRequest(request_id=str(place), messages=messages)
            for place, messages in enumerate(conversations[start : start + size], start)
        ]
        yield ScoreBatch(key=str(number), requests=tuple(requests))
