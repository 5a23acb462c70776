"""One example row of each record type."""

from lpfloop.stores import records as r

USER = (r.Message(role="user", content="2 + 3?"),)
RIGHT = (r.Message(role="assistant", content="5"),)
WRONG = (r.Message(role="assistant", content="6"),)
PROMPT = r.Prompt(
    prompt_id="prompt-1", task="math", split="train", messages=USER, reference="5",
    checks=(r.Check(kind="contains", argument="5"),), source="test",
)  # fmt: skip
CANDIDATE = r.Candidate(
    candidate_id="cand-1", prompt_id="prompt-1", iteration=1, kind="sample", parent_id=None,
    critique_id=None, policy="m0", model="tiny", principle=None, text="5", prompt_tokens=4,
    completion_tokens=2, finish_reason="stop", logprob=-0.5, seed=2**53 - 1, sampling="{}",
)  # fmt: skip
CRITIQUE = r.Critique(
    critique_id="crit-1", candidate_id="cand-1", prompt_id="prompt-1", iteration=1, critic="m0",
    aspects=(
        r.AspectRating(name="Logical Correctness", rating=1, comment="right"),
        r.AspectRating(name="Readability", rating=None, comment=""),
    ),
    text="right", reference_used=True, status="scored", attempts=1,
)  # fmt: skip
REWARD = r.Reward(
    candidate_id="cand-1", prompt_id="prompt-1", iteration=1, reward_model="r", score=None,
    status="overlong",
)  # fmt: skip
PREFERENCE = r.Preference(
    preference_id="pref-1", prompt_id="prompt-1", iteration=1, first_id="cand-1",
    second_id="cand-2", annotator="human:ada", preferred="first", flipped=False, order="swapped",
    text="the first one is right", status="scored",
)  # fmt: skip
PAIR = r.Pair(
    pair_id="pair-1", prompt_id="prompt-1", iteration=1, chosen_id="cand-1", rejected_id="cand-2",
    rule="success_vs_failure", rank=0, chosen_ratings=(1,), rejected_ratings=(-1,),
    chosen_reward=0.5, rejected_reward=None, prompt=USER, chosen=RIGHT, rejected=WRONG,
)  # fmt: skip
DEMONSTRATION = r.Demonstration(
    demonstration_id="demo-1", prompt_id="prompt-1", iteration=1, candidate_id="cand-1",
    rule="success_vs_failure", rank=0, ratings=(1,), reward=None, prompt=USER, completion=RIGHT,
)  # fmt: skip
UNPAIRED_ANSWER = r.UnpairedAnswer(
    unpaired_id="unp-1", prompt_id="prompt-1", iteration=1, candidate_id="cand-1",
    rule="success_or_failure", rank=0, ratings=(1,), reward=None, prompt=USER, completion=RIGHT,
    label=True,
)  # fmt: skip
YIELD = r.PairingOutcome(prompt_id="prompt-1", iteration=1, rule="r", outcome="paired", made=1)
CHECKPOINT = r.Checkpoint(
    checkpoint_id="c", parent_id=None, reference_id=None, iteration=0, recipe="initial",
    path="tiny", steps=0, metrics="{}",
)  # fmt: skip
REWARD_MODEL = r.RewardModel(
    reward_model_id="r1", parent_id="m0", iteration=1, path="rewards/r1", steps=12,
    metrics='{"accuracy": 0.75}',
)  # fmt: skip
ROLLOUT = r.Rollout(
    candidate_id="cand-1", prompt_id="prompt-1", iteration=1, step=3, reward=0.5, kl=0.02,
    logprob=-1.5, reference_logprob=-1.52, tokens=2, value=0.1, advantage_mean=0.3,
    advantage_std=None, quantile=0,
)  # fmt: skip
GRADE = r.Grade(
    grade_id="grade-1", candidate_id="cand-1", prompt_id="prompt-1", iteration=1,
    annotator="grader", aspect="truthfulness", rating=4.0, rationale="The sum is right.",
    types=("1", "3"), type_rationale="It makes too much of it.", reference_used=True, order=2,
    status="scored", attempts=1, text="Rating: 4",
)  # fmt: skip
PROMPT_REVIEW = r.PromptReview(
    prompt_id="prompt-1", iteration=1, judge="m0",
    aspects=(r.AspectRating(name="semantics", rating=1, comment="clear"),), intention="arithmetic",
    status="scored", attempts=1, text="{}",
)  # fmt: skip
RECEIPT = r.FilterCount(
    iteration=1, filter="prompt-rules", items="prompts", outcome="too_short", count=2,
    examples=("prompt-1", "prompt-2"),
)  # fmt: skip
STATISTIC = r.Statistic(iteration=1, method="ppo", step=3, metric="loss/policy", value=-0.01)
EVALUATION = r.Evaluation(
    iteration=0, checkpoint_id="c", benchmark="held-out", metric="math_accuracy", value=0.5,
    stderr=None, n=1,
)  # fmt: skip
SCORE = r.Score(
    iteration=0, checkpoint_id="c", benchmark="held-out", metric="math_accuracy",
    prompt_id="prompt-1", candidate_id="cand-1", value=1.0,
)  # fmt: skip
VERDICT = r.PolicyVerdict(
    iteration=2, checkpoint_id="c2", against="best", other_id="c1", other_iteration=1, split="dev",
    figure="verified", scope="task", name="math", n=220, clusters=140, before=0.5, after=0.55,
    difference=0.05, low=-0.01, high=0.11, gained=0.12, lost=0.07, answer="undecided", needed=700,
    level=0.0076,
)  # fmt: skip
STANDING = r.PolicyStanding(
    iteration=2, checkpoint_id="c2", accepted=True, best_id="c2", best_iteration=2, next_id="c2",
    next_iteration=2, gainless=0, reason="M_2 is the best so far",
)  # fmt: skip
ALARM = r.Alarm(
    iteration=2, checkpoint_id="c2", kind="approval", scope="family", name="repeat", before=-0.1,
    after=0.3, limit=0.2, stops=True, message="the critic approves more, less is right",
    examples=("cand-1",),
)  # fmt: skip
BREAKDOWN = r.Breakdown(
    breakdown_id="broken-1", candidate_id="cand-1", prompt_id="prompt-1", iteration=1,
    judge="judge", place=0, passage="She was born in 1950 in Oslo.",
    statements=("She was born in 1950.", "She was born in Oslo."), status="scored", attempts=1,
    text="- She was born in 1950.\n- She was born in Oslo.",
)  # fmt: skip
CLAIM = r.Claim(
    claim_id="claim-1", candidate_id="cand-1", prompt_id="prompt-1", iteration=1, judge="judge",
    place=1, statement="She was born in Oslo.", verdict="not_supported",
    reason="The text names Bergen.", status="scored", attempts=1,
    text="The text names Bergen.\n1: not supported",
)  # fmt: skip
ONE_OF_EACH = (
    PROMPT, CANDIDATE, CRITIQUE, REWARD, PREFERENCE, PAIR, DEMONSTRATION, UNPAIRED_ANSWER,
    YIELD, CHECKPOINT, REWARD_MODEL, ROLLOUT, STATISTIC, GRADE, PROMPT_REVIEW,
    RECEIPT, EVALUATION, SCORE, VERDICT, STANDING, ALARM, BREAKDOWN, CLAIM,
)  # fmt: skip
