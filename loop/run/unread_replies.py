"""The limit on a judge's replies that cannot be parsed: more of them would waste money.

The error gives the reasons, shows one reply, and names the setting that most likely helps.
"""

from collections import Counter
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

from ...configs.schema import RunConfig
from ...configs.secrecy import redact
from ...critics.status import WAS_READ, Status
from ...stores.address import run_argument

FEWEST = 200
"""The replies of a stage below which the share of unread ones does not count."""
SHOWN = 400
"""Characters of a reply that a message shows."""
SECTIONS = {
    "critique": "critic",
    "grade": "grading",
    "annotate": "annotation",
    "compare": "annotation",
    "break_up": "critic",
    "judge_claims": "critic",
    "score_answers": "assessment.judge",
    "review": "prompts.quality",
    "prompts": "prompts.quality",
}
"""The part of the configuration that describes a stage's judge, by the label's first word."""


class UnreadRepliesError(Exception):
    """Too large a share of a stage's replies cannot be parsed, or none of the answers is whole.

    `message` has the reasons; for a `run` that can go on, the message has the command.
    """

    code = "LPF-501"

    def __init__(self, message: str, run: Path | None = None) -> None:
        super().__init__(message if run is None else f"{message}. {_continuation(run)}")
        self.message = message


@dataclass(kw_only=True)
class ReplyCount:
    """The number of replies, and the reasons why some cannot be parsed, with an example of each."""

    requests: int = 0
    reasons: Counter[str] = field(default_factory=Counter[str])
    examples: dict[str, str] = field(default_factory=dict[str, str])

    def add(self, status: str, text: str) -> None:
        """Count a reply by the status of its parsing."""
        self.requests += 1
        if status not in WAS_READ:
            self.reasons[status] += 1
            if text or status not in self.examples:
                self.examples.setdefault(status, text)

    @property
    def unread(self) -> int:
        """The number of replies that cannot be parsed."""
        return self.reasons.total()

    def require_read(self, config: RunConfig, run: Path, stage: str, *, fewest: int = 1) -> None:
        """Raise an error if too large a share of `fewest` or more replies cannot be parsed.

        Raises:
            UnreadRepliesError: with the stage of the run, the reasons and a possible remedy.
        """
        most = config.smoke.max_parse_failures
        if self.requests < fewest or self.unread <= most * self.requests:
            return
        usual = self.reasons.most_common(1)[0][0]
        raise UnreadRepliesError(
            f"{stage}: {self.unread} of {self.requests} replies cannot be read ({self.summary}), "
            f"more than smoke.max_parse_failures={most:g}. {remedy(usual, stage, config)}. "
            f"{shorten_reply(usual, self.examples.get(usual, ''))}",
            run,
        )

    @property
    def summary(self) -> str:
        """The reasons with their counts, the most frequent one first."""
        return ", ".join(f"{n} {reason}" for reason, n in self.reasons.most_common())


def _continuation(run: Path) -> str:
    return (
        f"To ask again, `lpfloop resume {run_argument(run)}`; to change what is asked, the same "
        "command with "
        f"--reuse-from {run.name} --run NEW and other settings; to go on as it is, with "
        "--set smoke.max_parse_failures=1"
    )


def shorten_reply(reason: str, text: str) -> str:
    """Return the beginning of a reply for a message, on one line and without secrets."""
    cut = redact(text)
    more = f" … ({len(cut):,} characters)" if len(cut) > SHOWN else ""
    return f"One of them ({reason}): {cut[:SHOWN]!r}{more}" if cut else f"One of them: {reason}"


def remedy(reason: str, stage: str, config: RunConfig) -> str:
    """Return the setting that most likely makes a stage's replies readable."""
    section = SECTIONS.get(stage.partition(":")[0], "critic")
    annotates = section == "annotation"
    engine = "annotation.ROLE.engine" if annotates else f"{section}.engine"
    texts = "annotation.pool" if annotates else f"{section}.templates"
    bound = f"max_tokens in the file of annotation.pool, which is {config.annotation.pool}"
    if not annotates:
        judge: Any = attrgetter(section)(config)
        most = judge.sampling.max_tokens
        bound = f"{section}.sampling.max_tokens, which is {most}"
    cut = f"The judge is cut off before it ends: raise {bound}"
    advice: dict[str, str] = {
        Status.OVERLONG: (
            "The questions do not fit into the judge's context: give it a longer one "
            f"({engine}.max_model_len, or an option of its server), or let answers be shorter "
            f"(policy.sampling.max_tokens, which is {config.policy.sampling.max_tokens})"
        ),
        Status.TRUNCATED: cut,
        Status.TRUNCATED_THINKING: cut,
        Status.EMPTY: (
            "The judge's replies are empty: look at its chat template; if it thinks first, raise "
            f"{bound}"
        ),
        Status.UNMARKED: (
            "The judge leaves out the line below which its verdict counts: name one that follows "
            "instructions or, if it was trained on bare questions, set injection_guard=false"
        ),
        Status.FAILED: "The requests failed: the run's folder logs and the server's log say why",
        Status.REFUSAL: "The judge refuses to judge: name another one, or templates of your own",
    }
    otherwise = (
        "The judge does not follow the requested form: choose one that follows "
        f"instructions, or other templates ({texts})"
    )
    return advice.get(reason, otherwise)
