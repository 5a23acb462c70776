"""The row types of the loop, as frozen dataclasses.

A candidate is a sampled answer y, or a refinement z; a critique is f(x, y) with one rating an
aspect (-1 failure, 0 moderate, 1 success); a rating that could not be read is None with a reason,
never 0. Ids are hashes of the inputs that determine the row (see `keys`). The Arrow schemas are in
`schemas`.
"""

from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "dev", "held-out"]
"""Prompts for training; for decisions inside the loop; for reports only."""
PromptPart = Literal["sft", "preference", "unlabeled"]
"""Train prompts by purpose: to fine-tune on, to compare answers of, to optimise on."""
Against = Literal["initial", "previous", "best"]
Scope = Literal["all", "eval_set", "task", "family", "source"]
Answer = Literal["better", "not better", "undecided"]
CandidateKind = Literal["sample", "refinement", "greedy", "external", "rollout"]
FinishReason = Literal["stop", "length", "truncated_thinking", "overlong", "failed"]
Rating = Literal[-1, 0, 1]
Preferred = Literal["first", "second", "tie"]
Order = Literal["as_given", "swapped", "both"]
GradedAspect = Literal["instruction_following", "truthfulness", "honesty", "helpfulness", "overall"]
Support = Literal["supported", "not_supported", "irrelevant"]
"""The verdict of a reference on an atomic statement."""
Filtered = Literal["prompts", "comparisons", "pairs", "candidates", "rows"]

SCORED = "scored"
"""The status of a critique whose ratings were parsed; any other status is the reason why not."""


def storable(text: str) -> str:
    """Return `text` as every store can hold it: NUL and lone surrogates become U+FFFD."""
    return (
        text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    )


class Row:
    """A row of a table; each kind of row is a subclass with the table's columns as fields."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A verifiable demand on the answer, checked by `critics.verify`: a kind and its argument."""

    kind: str
    argument: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt(Row):
    """x: a prompt for the policy, with the reference answer if the task has one.

    `family` groups prompts in reports, such as all prompts of one template; `cluster` groups
    prompts whose results are not independent, such as all questions about one text; `eval_set`
    names the set of a held-out prompt. `part` is its use in training, if the file states one.
    `correct_answers` and `incorrect_answers` are further answers of its data set, None if unknown.
    """

    prompt_id: str
    task: str
    split: Split
    messages: tuple[Message, ...]
    reference: str | None
    checks: tuple[Check, ...]
    source: str
    family: str | None = None
    cluster: str | None = None
    eval_set: str | None = None
    part: PromptPart | None = None
    correct_answers: tuple[str, ...] | None = None
    incorrect_answers: tuple[str, ...] | None = None

    @property
    def instruction(self) -> str:
        """The conversation as one text, for the templates of critiques and reflections."""
        if len(self.messages) == 1:
            return self.messages[0].content
        return "\n".join(f"[{m.role.capitalize()}] {m.content}" for m in self.messages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(Row):
    """y (a sample, a rollout, a greedy answer or an external text), or z (a refinement).

    `text` is the answer alone; `reasoning` is the thought of a reasoning model before it, else
    None. `completion_tokens` counts both, and `logprob` is the sum over both, in nats, under the
    unscaled model distribution.
    """

    candidate_id: str
    prompt_id: str
    iteration: int
    kind: CandidateKind
    parent_id: str | None
    critique_id: str | None
    policy: str
    model: str
    principle: str | None
    text: str
    reasoning: str | None = None
    prompt_tokens: int
    completion_tokens: int
    finish_reason: FinishReason
    logprob: float | None
    seed: int
    sampling: str

    @property
    def usable(self) -> bool:
        """Whether the text is a whole answer: neither truncated nor empty."""
        return self.finish_reason == "stop" and bool(self.text.strip())

    @property
    def cut(self) -> bool:
        """Whether the text is the beginning of an answer that was cut off."""
        return self.finish_reason == "length" and bool(self.text.strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class AspectRating:
    """The verdict on one aspect; `rating` is None if it did not parse."""

    name: str
    rating: Rating | None
    comment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Critique(Row):
    """f(x, y): the feedback model's reply, and the ratings read from its last dictionary.

    `status` is `scored`, or the reason why the ratings did not parse; `attempts` counts the
    requests. If a critic wrote several critiques of a candidate, `sample` numbers the later ones,
    from 2. Ratings by people may have the time (`judged_at`, UTC) and the duration
    (`judged_seconds`). `same_as` is the critique of an equal answer to the same prompt, whose reply
    this one shares.
    """

    critique_id: str
    candidate_id: str
    prompt_id: str
    iteration: int
    critic: str
    aspects: tuple[AspectRating, ...]
    text: str
    reference_used: bool
    status: str
    attempts: int
    sample: int | None = None
    judged_at: str | None = None
    judged_seconds: float | None = None
    same_as: str | None = None

    @property
    def positive(self) -> bool:
        """Whether every rated aspect is 1 (Section 3.3: the positive set)."""
        return self.status == SCORED and all(a.rating == 1 for a in self.aspects)

    @property
    def negative(self) -> bool:
        """Whether any rated aspect is 0 or -1 (Section 3.3: the negative set)."""
        return self.status == SCORED and any(a.rating in (0, -1) for a in self.aspects)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grade(Row):
    """The rating of a candidate in one aspect (UltraFeedback, Section 2.4).

    `rating` is 1 to 5; 1 to 10 for the aspect `overall`, whose `rationale` is a critique in words;
    and on the form's scale for aspects of an evaluation form such as `just-eval:depth`. It is None
    with the reason in `status`: the reply did not parse, or `not_applicable`. `types` are the
    numbers of the kinds of mistakes, or of help. Grades from one request share `text`, the raw
    reply; `order` is the candidate's place in that request, from 0, or -1 without a request.
    `same_as` is the grade of an equal answer to the same prompt; the grader saw only that one.
    """

    grade_id: str
    candidate_id: str
    prompt_id: str
    iteration: int
    annotator: str
    aspect: str
    rating: float | None
    rationale: str
    types: tuple[str, ...]
    type_rationale: str
    reference_used: bool
    order: int
    status: str
    attempts: int
    text: str
    same_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown(Row):
    """A passage of an answer, broken into atomic statements (FActScore, Section 3.1).

    `place` counts the passages of an answer from 0. Without `statements`, `status` is the reason:
    the reply did not parse, or the prompt lacks a reference.
    """

    breakdown_id: str
    candidate_id: str
    prompt_id: str
    iteration: int
    judge: str
    place: int
    passage: str
    statements: tuple[str, ...]
    status: str
    attempts: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Row):
    """An atomic statement of an answer, and whether the prompt's reference supports it.

    `place` counts the statements of an answer from 0. `verdict` is None with the reason in
    `status`; `reason` is the judge's reason for its verdict.
    """

    claim_id: str
    candidate_id: str
    prompt_id: str
    iteration: int
    judge: str
    place: int
    statement: str
    verdict: Support | None
    reason: str
    status: str
    attempts: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReview(Row):
    """A review of a prompt's quality (ChatGLM-RLHF, Section 3.2).

    `aspects` are `intention`, `semantics` and `answerability`, rated on three levels as in a
    critique; `intention` is the prompt's class in the taxonomy, None if unknown.
    """

    prompt_id: str
    iteration: int
    judge: str
    aspects: tuple[AspectRating, ...]
    intention: str | None
    status: str
    attempts: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterCount(Row):
    """How many of a filter's input items had one outcome, with a few of their ids.

    `outcome` is `kept`, `kept: REASON`, or the reason why they were dropped. A filter's counts
    sum to its input; a filter that works by chunk leaves one for each outcome and chunk.
    """

    iteration: int
    filter: str
    items: Filtered
    outcome: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward(Row):
    """r(x, y): the scalar of a reward model; `score` is None with `status` as the reason.

    If a candidate has several, the last one counts, for pairs and in lists; `lpfloop show` has all.
    """

    candidate_id: str
    prompt_id: str
    iteration: int
    reward_model: str
    score: float | None
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference(Row):
    """z(x, y0, y1): which of two candidates an annotator prefers; None with `status` as the reason.

    `order` is the order in the request (`both`: once in each order, then reconciled); `preferred`
    is already corrected for it. `flipped`: simulated noise, a fair coin, replaced the annotator.
    `judged_at` and `judged_seconds` are as in a critique. The two scores are those of an imported
    comparison, if it has any.
    """

    preference_id: str
    prompt_id: str
    iteration: int
    first_id: str
    second_id: str
    annotator: str
    preferred: Preferred | None
    flipped: bool
    order: Order
    text: str
    status: str
    judged_at: str | None = None
    judged_seconds: float | None = None
    first_score: float | None = None
    second_score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(Row):
    """(x, y+, y-) and the rule that made it; prompt, chosen, rejected are TRL's columns.

    `chosen_cut` and `rejected_cut` are true if the answer was cut at the token limit, else null.
    """

    pair_id: str
    prompt_id: str
    iteration: int
    chosen_id: str
    rejected_id: str
    rule: str
    rank: int
    chosen_ratings: tuple[Rating, ...]
    rejected_ratings: tuple[Rating, ...]
    chosen_reward: float | None
    rejected_reward: float | None
    prompt: tuple[Message, ...]
    chosen: tuple[Message, ...]
    rejected: tuple[Message, ...]
    chosen_cut: bool | None = None
    rejected_cut: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration(Row):
    """(x, y) of a rejection-sampling set; prompt and completion are TRL's columns."""

    demonstration_id: str
    prompt_id: str
    iteration: int
    candidate_id: str
    rule: str
    rank: int
    ratings: tuple[Rating, ...]
    reward: float | None
    prompt: tuple[Message, ...]
    completion: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpairedAnswer(Row):
    """(x, y, success or failure): a single judged answer.

    `label` is true for a success; prompt, completion and label are TRL's columns.
    """

    unpaired_id: str
    prompt_id: str
    iteration: int
    candidate_id: str
    rule: str
    rank: int
    ratings: tuple[Rating, ...]
    reward: float | None
    prompt: tuple[Message, ...]
    completion: tuple[Message, ...]
    label: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingOutcome(Row):
    """How many training rows were made from one prompt, or the reason for none."""

    prompt_id: str
    iteration: int
    rule: str
    outcome: str
    made: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint(Row):
    """M_t: published weights, named by the hash of their manifest.

    With an `at_step` it is an intermediate checkpoint of the training, saved after that step.
    """

    checkpoint_id: str
    parent_id: str | None
    reference_id: str | None
    iteration: int
    recipe: str
    path: str
    steps: int
    metrics: str
    at_step: int | None = None

    @property
    def name(self) -> str:
        """Its name in its run: `M_2`; after step 20 of the training of M_2 `M_2@20`."""
        return f"M_{self.iteration}" + ("" if self.at_step is None else f"@{self.at_step}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardModel(Row):
    """r: a published reward model, named by the hash of its manifest, trained from `parent_id`."""

    reward_model_id: str
    parent_id: str
    iteration: int
    path: str
    steps: int
    metrics: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout(Row):
    """An online method's numbers for one candidate at one step.

    `reward` is the reward of the whole answer, before the KL penalty. `kl`, `logprob` and
    `reference_logprob` are sums over the answer's tokens, in nats. `value`, `advantage_mean` and
    `advantage_std` are PPO's: the value at the first token, and the moments of the advantages over
    the answer's tokens, after whitening. For GRPO and RLOO `advantage_mean` is the advantage, the
    same at each token. `quantile` is Quark's, 0 the best.
    """

    candidate_id: str
    prompt_id: str
    iteration: int
    step: int
    reward: float
    kl: float
    logprob: float
    reference_logprob: float
    tokens: int
    value: float | None
    advantage_mean: float | None
    advantage_std: float | None
    quantile: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic(Row):
    """A number about one step of a training, such as `loss`, `rewards/margins` or `kl`."""

    iteration: int
    method: str
    step: int
    metric: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Row):
    """A number about M_t: the mean of `n` prompt-level scores, and its standard error."""

    iteration: int
    checkpoint_id: str
    benchmark: str
    metric: str
    value: float
    stderr: float | None
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score(Row):
    """One prompt-level score of an `Evaluation`."""

    iteration: int
    checkpoint_id: str
    benchmark: str
    metric: str
    prompt_id: str
    candidate_id: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVerdict(Row):
    """Whether M_t is better than another policy, by `n` prompts in `clusters` clusters.

    `scope` is all prompts, or the `task` or `family` called `name`. `before` and `after` are the
    means of the other policy and of M_t, `difference` their paired difference, from `low` to
    `high`. `level` is the one-sided error level of each bound: the part of the error rate
    for this look and scope. `gained` and `lost` are the shares of prompts that got better and
    worse; `needed` is the number of prompts that would decide, None if it is decided or no number
    would.
    """

    iteration: int
    checkpoint_id: str
    against: Against
    other_id: str
    other_iteration: int
    split: Split
    figure: str
    scope: Scope
    name: str
    n: int
    clusters: int
    before: float
    after: float
    difference: float
    low: float | None
    high: float | None
    gained: float
    lost: float
    answer: Answer
    needed: int | None
    level: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStanding(Row):
    """The policies of a run after iteration t: M_t, the best so far, the start of the next one.

    `accepted`: whether M_t is at least as good as the best, by the configured margin; `reason`
    explains it in words. `gainless` counts the iterations without a new best.
    """

    iteration: int
    checkpoint_id: str
    accepted: bool
    best_id: str
    best_iteration: int
    next_id: str
    next_iteration: int
    gainless: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm(Row):
    """A sign that a run learns to please its judge, and its evidence.

    `before` and `after` are the compared numbers, `limit` the limit of their change; `examples` are
    ids of rows that show it. `stops`: whether the run ends there.
    """

    iteration: int
    checkpoint_id: str
    kind: str
    scope: Scope
    name: str
    before: float | None
    after: float
    limit: float
    stops: bool
    message: str
    examples: tuple[str, ...]
