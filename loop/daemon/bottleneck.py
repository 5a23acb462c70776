"""The bottleneck of a run: how much of its time each role worked, by its journal.

A role works while one of its stages is under way. Parallel stages share the wall time, so that
shares can sum up to more than 1; a stage that waits for another one's rows counts as work. So a
role is reported as the bottleneck only if it leads the others clearly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from ...policies.trainers.job import ONLINE
from ...stores.keys import Json
from .plan import Plan
from .progress import Progress

POLICY, TRAINING, ITSELF = "policy", "training", "lpfloop itself"
ROLE_OF: Mapping[str, str] = {
    **dict.fromkeys(("sample", "refine", "evaluate", "kl-sample", "logprob", "kl"), POLICY),
    "critique": "critic",
    "reward": "reward",
    **dict.fromkeys(("annotate", "compare"), "annotation"),
    "complete": "completion",
    "grade": "grading",
    "score_answers": "assessment.judge",
    **dict.fromkeys(("review", "prompts:review", "prompts:quality"), "prompts.quality"),
    **dict.fromkeys(("train", "train_reward", "step", *ONLINE), TRAINING),
}
"""The role that works in a stage, by its name or the first word of that; else lpfloop itself."""

SURE_S = 300.0
"""With fewer seconds of work, no bottleneck is reported."""

MAJORITY, LEAD = 0.5, 0.2
"""The least share of the time of a bottleneck, and its least lead over the next role."""

ENDPOINT = "openai"
ENGINES = {"annotation": "annotation.strong.engine", "completion": "each model's engine"}
"""The settings of a role's engine, if not under its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleTime:
    """The seconds in which a role worked, their share of the run's, its calls and its tokens."""

    role: str
    seconds: float
    share: float
    calls: int
    tokens: int
    calls_per_s: float
    tokens_per_s: float


def role_times(stages: Iterable[Progress], wall_s: float) -> list[RoleTime]:
    """Return how each role worked in `wall_s` seconds of a run, the busiest first."""
    found: dict[str, list[Progress]] = {}
    for stage in stages:
        if stage.seconds > 0:
            found.setdefault(_role(stage.stage), []).append(stage)
    times = [_role_time(role, worked, wall_s) for role, worked in found.items()]
    return sorted(times, key=lambda time: -time.seconds)


def _role(stage: str) -> str:
    return ROLE_OF.get(stage) or ROLE_OF.get(stage.partition(":")[0], ITSELF)


def _role_time(role: str, worked: Sequence[Progress], wall_s: float) -> RoleTime:
    seconds = sum(stage.seconds for stage in worked)
    calls, tokens = sum(s.calls for s in worked), sum(s.tokens for s in worked)
    return RoleTime(
        role=role,
        seconds=round(seconds, 3),
        share=round(min(1.0, seconds / wall_s), 3) if wall_s else 0.0,
        calls=calls,
        tokens=tokens,
        calls_per_s=round(calls / seconds, 3),
        tokens_per_s=round(tokens / seconds, 1),
    )


def bottleneck(times: Sequence[RoleTime], wall_s: float, plan: Plan | None) -> str | None:
    """Return the bottleneck of a run with a remedy; None if no role leads clearly."""
    models = [time for time in times if time.role != ITSELF]
    if wall_s < SURE_S or not models:
        return None
    first, others = models[0], models[1:]
    second = others[0].share if others else 0.0
    if first.share < MAJORITY or first.share - second < LEAD:
        return None
    beside = f", the {others[0].role} {others[0].share:.0%}" if others else ""
    who = "training" if first.role == TRAINING else f"the {first.role}"
    return (
        f"the run waits for {who} most: it worked {first.share:.0%} of the time{beside}; "
        f"{_help(first.role, plan)}"
    )


def _help(role: str, plan: Plan | None) -> str:
    """Return which settings may make a role faster."""
    if role == TRAINING:
        return "more GPUs (training.devices, training.processes=auto) may help"
    if role == "reward":
        return "more GPUs (reward.devices, reward.replicas) or reward.dtype=bfloat16 may help"
    engine = ENGINES.get(role, f"{role}.engine")
    kinds = {r.engine for r in plan.roles if r.role.startswith(role)} if plan else set[str]()
    more: list[str] = []
    if ENDPOINT in kinds:
        more += [f"endpoints ({engine}.base_urls)", f"requests in flight ({engine}.concurrency)"]
    if kinds - {ENDPOINT} or not kinds:
        more.append(f"GPUs ({engine}.devices, {engine}.replicas)")
    return f"{' or '.join(f'more {what}' for what in more)} may help"


def busy(stages: Iterable[Progress], wall_s: float, plan: Plan | None) -> dict[str, Json]:
    """Return the roles' work in `wall_s` seconds of a run, for `status`."""
    times = role_times(stages, wall_s)
    return {
        "wall_s": round(wall_s, 3),
        "roles": [asdict(time) for time in times],
        "bottleneck": bottleneck(times, wall_s, plan),
    }
