"""The alarms of a run with their codes and remedies: its watch's, and falls of its probes."""

from dataclasses import asdict, dataclass

import polars as pl

from ....stores.frames import empty_frame, frame_rows
from ....stores.keys import Json
from ....stores.lake import RunReader
from ....stores.records import Alarm, Evaluation
from .forgetting import FALL, PREFIX, alarming, describe_fall
from .run_status import evaluations

UNVERIFIED, PROBE_FALL = "unverified", "probe"
"""Kinds of alarms: approval of unverified prompts, which may be right; a probe's fall."""


@dataclass(frozen=True, slots=True)
class AlarmCode:
    """The stable code of alarms, and the remedy."""

    code: str
    remedy: str


CODES = {
    "approval": AlarmCode(
        "W-APPROVAL",
        "read the examples; set critic.use_reference=true or name another critic.model",
    ),
    UNVERIFIED: AlarmCode(
        "W-UNVERIFIED", "give these prompts references or checks (prompts.fields)"
    ),
    "style:length": AlarmCode("W-LENGTH", "set pairs.balance_length=true"),
    "style:repetition": AlarmCode(
        "W-REPETITION", "lower training.dpo.epochs or raise training.dpo.beta"
    ),
    "saturation": AlarmCode(
        "W-SATURATED", "drop it from critic.aspects or tighten its rubric (critic.templates)"
    ),
    "saturation:family": AlarmCode(
        "W-CRITIC", "give these prompts references (critic.use_reference) or leave them out"
    ),
    "saturation:reward": AlarmCode(
        "W-EQUAL-REWARDS", "raise policy.sampling.temperature or set another reward.model"
    ),
    "copies": AlarmCode("W-COPIES", "lower training.dpo.epochs or training.dpo.learning_rate"),
    "same chosen": AlarmCode(
        "W-DUPLICATES", "lower recipe.top_k or raise policy.sampling.temperature"
    ),
    "kl": AlarmCode(
        "W-KL", "lower the method's learning_rate, or raise training.dpo.beta or kl_coef"
    ),
    "missing_eos": AlarmCode("W-CUT", "raise policy.sampling.max_tokens, or set missing_eos"),
    "entropy": AlarmCode("W-ENTROPY", "lower the method's learning_rate or its steps"),
    "length": AlarmCode("W-GROWTH", "lower the method's learning_rate or its steps"),
    "reward": AlarmCode(
        "W-REWARD-FALL", "lower the method's learning_rate, or set publish_every and choose=best"
    ),
    PROBE_FALL: AlarmCode("W-PROBE", "lower training.dpo.learning_rate or raise training.dpo.beta"),
}
"""By the kind of an alarm, or by its kind and its scope or name."""


def code_of(alarm: Alarm) -> AlarmCode:
    """Return the code and the remedy of an alarm."""
    places = (f"{alarm.kind}:{alarm.scope}", f"{alarm.kind}:{alarm.name}", alarm.kind)
    return next(CODES[place] for place in places if place in CODES)


def severity(alarm: Alarm) -> str:
    """Return `stop` if an alarm can stop its run, `info` if it is `UNVERIFIED`, else `warning`."""
    return "stop" if alarm.stops else "info" if alarm.kind == UNVERIFIED else "warning"


def alarms(run: RunReader, iteration: int | None = None) -> list[Alarm]:
    """Return the alarms of all iterations, or of one; those that stop come first in theirs."""
    stored = frame_rows(Alarm, run.scan("alarms", iteration=iteration).collect())
    fallen = [
        _of_probe(number)
        for number in evaluations(run)
        if alarming(number) and iteration in (None, number.iteration)
    ]
    return sorted((*stored, *fallen), key=lambda alarm: (-alarm.iteration, not alarm.stops))


def alarm_rows(run: RunReader, iteration: int | None = None) -> pl.LazyFrame:
    """Return the alarms as rows, with `code`, `severity` and `remedy`."""
    rows = [alarm_fields(alarm) for alarm in alarms(run, iteration)]
    more = dict.fromkeys(("code", "severity", "remedy"), pl.String)
    return pl.DataFrame(rows, schema={**empty_frame("alarms").schema, **more}).lazy()


def sentence(alarm: Alarm) -> str:
    """Return an alarm as a line: its code and its event."""
    return f"{code_of(alarm).code}: {alarm.message}" + (
        " (can stop the run)" if alarm.stops else ""
    )


def alarm_fields(alarm: Alarm) -> dict[str, Json]:
    """Return the fields of an alarm's event."""
    return {
        **asdict(alarm),
        "code": code_of(alarm).code,
        "severity": severity(alarm),
        "remedy": code_of(alarm).remedy,
    }


def _of_probe(number: Evaluation) -> Alarm:
    """Return a fall on a probe as an alarm without `before`."""
    return Alarm(
        iteration=number.iteration,
        checkpoint_id=number.checkpoint_id,
        kind=PROBE_FALL,
        scope="all",
        name=number.benchmark.removeprefix(PREFIX) + ("" if number.metric == FALL else ", overall"),
        before=None,
        after=-number.value,
        limit=-(number.stderr or 0.0),
        stops=False,
        message=describe_fall(number),
        examples=(),
    )
