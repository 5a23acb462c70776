"""One example row of each noun."""

from lpfloop.stores.records import (
    AspectRating,
    Candidate,
    Check,
    Checkpoint,
    Critique,
    Demonstration,
    Evaluation,
    Message,
    Pair,
    Preference,
    Prompt,
    Reward,
    RewardModel,
    Rollout,
    Score,
    Statistic,
    Yield,
)

USER = (Message(role="user", content="2 + 3?"),)
RIGHT = (Message(role="assistant", content="5"),)
WRONG = (Message(role="assistant", content="6"),)

PROMPT = Prompt(
    prompt_id="prompt-1",
    task="math",
    split="train",
    messages=USER,
    reference="5",
    checks=(Check(kind="contains", argument="5"),),
    source="test",
)
CANDIDATE = Candidate(
    candidate_id="cand-1",
    prompt_id="prompt-1",
    iteration=1,
    kind="sample",
    parent_id=None,
    critique_id=None,
    policy="m0",
    model="tiny",
    principle=None,
    text="5",
    prompt_tokens=4,
    completion_tokens=2,
    finish_reason="stop",
    logprob=-0.5,
    seed=2**53 - 1,
    sampling="{}",
)
CRITIQUE = Critique(
    critique_id="crit-1",
    candidate_id="cand-1",
    prompt_id="prompt-1",
    iteration=1,
    critic="m0",
    aspects=(
        AspectRating(name="Logical Correctness", rating=1, comment="right"),
        AspectRating(name="Readability", rating=None, comment=""),
    ),
    text="right",
    reference_used=True,
    status="scored",
    attempts=1,
)
REWARD = Reward(
    candidate_id="cand-1",
    prompt_id="prompt-1",
    iteration=1,
    reward_model="r",
    score=None,
    status="overlong",
)
PREFERENCE = Preference(
    preference_id="pref-1",
    prompt_id="prompt-1",
    iteration=1,
    first_id="cand-1",
    second_id="cand-2",
    annotator="human:ada",
    preferred="first",
    flipped=False,
    order="swapped",
    text="the first one is right",
    status="scored",
)
PAIR = Pair(
    pair_id="pair-1",
    prompt_id="prompt-1",
    iteration=1,
    chosen_id="cand-1",
    rejected_id="cand-2",
    rule="success_vs_failure",
    rank=0,
    chosen_ratings=(1,),
    rejected_ratings=(-1,),
    chosen_reward=0.5,
    rejected_reward=None,
    prompt=USER,
    chosen=RIGHT,
    rejected=WRONG,
)
DEMONSTRATION = Demonstration(
    demonstration_id="demo-1",
    prompt_id="prompt-1",
    iteration=1,
    candidate_id="cand-1",
    rule="success_vs_failure",
    rank=0,
    ratings=(1,),
    reward=None,
    prompt=USER,
    completion=RIGHT,
)
YIELD = Yield(prompt_id="prompt-1", iteration=1, rule="r", outcome="paired", made=1)
CHECKPOINT = Checkpoint(
    checkpoint_id="c",
    parent_id=None,
    reference_id=None,
    iteration=0,
    recipe="initial",
    path="tiny",
    steps=0,
    metrics="{}",
)
REWARD_MODEL = RewardModel(
    reward_model_id="r1",
    parent_id="m0",
    iteration=1,
    path="rewards/r1",
    steps=12,
    metrics='{"accuracy": 0.75}',
)
ROLLOUT = Rollout(
    candidate_id="cand-1",
    prompt_id="prompt-1",
    iteration=1,
    step=3,
    reward=0.5,
    kl=0.02,
    logprob=-1.5,
    reference_logprob=-1.52,
    tokens=2,
    value=0.1,
    advantage_mean=0.3,
    advantage_std=None,
    quantile=0,
)
STATISTIC = Statistic(iteration=1, method="ppo", step=3, metric="loss/policy", value=-0.01)
EVALUATION = Evaluation(
    iteration=0,
    checkpoint_id="c",
    benchmark="held-out",
    metric="math_accuracy",
    value=0.5,
    stderr=None,
    n=1,
)
SCORE = Score(
    iteration=0,
    checkpoint_id="c",
    benchmark="held-out",
    metric="math_accuracy",
    prompt_id="prompt-1",
    candidate_id="cand-1",
    value=1.0,
)
ONE_OF_EACH = (
    PROMPT,
    CANDIDATE,
    CRITIQUE,
    REWARD,
    PREFERENCE,
    PAIR,
    DEMONSTRATION,
    YIELD,
    CHECKPOINT,
    REWARD_MODEL,
    ROLLOUT,
    STATISTIC,
    EVALUATION,
    SCORE,
)
