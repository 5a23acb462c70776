"""The course of a run: the policies it has made, the best of them, and the start of the next one.

A policy that is worse than the best by more than the margins is kept in the lake, but the next
iteration does not begin with it. All policies are compared with the best one, so a run cannot drift
away from it by small steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...configs.schema import VerdictConfig
from ...stores.records import Against, Checkpoint, PolicyStanding, PolicyVerdict
from ..lake.query.format_figures import figure_name

UNKNOWN = "no measure on dev prompts shows how good M_{} is"


Found = Mapping[tuple[str, str], tuple[bool, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointHistory:
    """The policies of a run so far, by iteration, and their standing; without verdicts, the latest.

    `first` is the iteration of the policy that the run begins with. `found` has, for each look so
    far, by split and policy compared with, whether it found a gain.
    """

    first: int
    made: Mapping[int, Checkpoint] = field(default_factory=dict[int, Checkpoint])
    standing: PolicyStanding | None = None
    found: Found = field(default_factory=dict[tuple[str, str], tuple[bool, ...]])

    @classmethod
    def of(cls, initial: Checkpoint) -> "CheckpointHistory":
        """Return the course of a run that has made no policy since its first one."""
        return cls(first=initial.iteration, made={initial.iteration: initial})

    @property
    def latest(self) -> Checkpoint:
        """The policy of the last iteration."""
        return self.made[max(self.made)]

    @property
    def best(self) -> Checkpoint:
        """The best policy; without verdicts the latest."""
        standing = self.standing
        return self.latest if standing is None else self.made[standing.best_iteration]

    @property
    def start(self) -> Checkpoint:
        """The policy that the next iteration begins with."""
        standing = self.standing
        return self.latest if standing is None else self.made[standing.next_iteration]

    @property
    def gainless(self) -> int:
        """How many iterations have passed since the best policy was found."""
        return 0 if self.standing is None else self.standing.gainless

    @property
    def compared(self) -> dict[Against, Checkpoint]:
        """The policies that the next one is compared with."""
        return {"initial": self.made[self.first], "previous": self.latest, "best": self.best}

    def having(
        self, made: Checkpoint, standing: PolicyStanding | None = None
    ) -> "CheckpointHistory":
        """Return the course with the policy that its next iteration made, and its standing."""
        policies = {**self.made, made.iteration: made}
        return replace(self, made=policies, standing=standing or self.standing)

    def finding(self, verdicts: Sequence[PolicyVerdict]) -> "CheckpointHistory":
        """Return the course with the findings of one more look at all prompts."""
        looks = {
            (row.split, row.against): row.answer == "better"
            for row in verdicts
            if row.scope == "all"
        }
        found = {look: (*self.found.get(look, ()), better) for look, better in looks.items()}
        return replace(self, found={**self.found, **found})


def standing_after(
    course: CheckpointHistory,
    made: Checkpoint,
    verdicts: Sequence[PolicyVerdict],
    config: VerdictConfig,
) -> PolicyStanding:
    """Return the standing of a run's policies with M_t, by the verdicts on it."""
    against_best = [row for row in verdicts if row.against == "best"]
    overall = next((row for row in against_best if row.scope == "all"), None)
    falls = list(_falls(against_best, config))
    is_best = overall is None or (not falls and overall.difference > 0)
    best = made if is_best else course.best
    goes_on = not falls or config.on_regression == "continue"
    following = made if goes_on else best
    return PolicyStanding(
        iteration=made.iteration,
        checkpoint_id=made.checkpoint_id,
        accepted=not falls,
        best_id=best.checkpoint_id,
        best_iteration=best.iteration,
        next_id=following.checkpoint_id,
        next_iteration=following.iteration,
        gainless=0 if is_best else course.gainless + 1,
        reason=_reason(made, course.best, overall, falls),
    )


def _falls(against_best: Sequence[PolicyVerdict], config: VerdictConfig) -> Iterator[str]:
    """Yield the tasks, or all, in which a policy is worse than the best beyond the margins."""
    for row in against_best:
        if row.scope == "all" and row.difference < -config.regression_tolerance:
            tolerance = _points(config.regression_tolerance)
            yield f"by {_points(-row.difference)} in all (margin {tolerance})"
        if row.scope == "task" and row.difference < -config.task_tolerance:
            margin = _points(config.task_tolerance)
            yield f"by {_points(-row.difference)} in {row.name} (margin {margin})"


def _reason(
    made: Checkpoint, best: Checkpoint, overall: PolicyVerdict | None, falls: Sequence[str]
) -> str:
    name, other = f"M_{made.iteration}", f"M_{best.iteration}"
    if overall is None:
        return UNKNOWN.format(made.iteration)
    if falls:
        return f"{name} is behind the best, {other}, on dev prompts: {' and '.join(falls)}"
    if overall.difference > 0:
        above = f"{figure_name(overall.figure)} {_points(overall.difference)} above {other}"
        return f"{name} is the best so far: {above} on dev prompts"
    if overall.difference == 0:
        return f"{name} is as good as the best, {other}, on dev prompts"
    behind = _points(-overall.difference)
    return f"{name} lies {behind} behind the best, {other}, on dev prompts; the margins allow it"


def verdict_text(standing: PolicyStanding, verdicts: Sequence[PolicyVerdict]) -> str:
    """Return the verdicts of an iteration, and their consequence, as text."""
    since = [row for row in verdicts if row.against == "initial" and row.scope == "all"]
    compared = "".join(
        f"; {row.answer} than M_{row.other_iteration}"
        if row.answer != "undecided"
        else f"; undecided against M_{row.other_iteration}"
        for row in since
    )
    lost = [row.name for row in verdicts if is_lost(row) and row.against == "initial"]
    families = f"; lost since M_0: {', '.join(lost)}" if lost else ""
    then = f"the next iteration begins with M_{standing.next_iteration}"
    return f"verdict: {standing.reason}{compared}{families}; {then}"


def is_lost(row: PolicyVerdict) -> bool:
    """Whether a task or family got worse, beyond chance at the error rate."""
    return row.scope != "all" and row.high is not None and row.high < 0


def _points(share: float) -> str:
    return f"{100 * share:.1f} points"
