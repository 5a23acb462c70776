"""The loop variants: one file a method, one line each in `RECIPES`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...stores.records import Checkpoint
from ..run.iteration import Iteration
from . import (
    best_of_n,
    chatglm_dpo,
    chatglm_ppo,
    chatglm_rs,
    critique_model,
    dpo,
    expert_iteration,
    feedme,
    ppo,
    quark,
    reward_conditioning,
    reward_model,
    reward_only,
    rlrf,
    sft,
    ultrafeedback_bon,
    ultrafeedback_dpo,
    ultrafeedback_ppo,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A recipe and what `lpfloop variants` says of it."""

    recipe: Callable[[Iteration, Any], Checkpoint]
    paper: str
    summary: str


RECIPES: Mapping[str, Variant] = {
    "rlrf": Variant(recipe=rlrf.rlrf, paper=rlrf.PAPER, summary=rlrf.SUMMARY),
    "reward-only": Variant(
        recipe=reward_only.reward_only, paper=reward_only.PAPER, summary=reward_only.SUMMARY
    ),
    "sft": Variant(recipe=sft.sft, paper=sft.PAPER, summary=sft.SUMMARY),
    "feedme": Variant(recipe=feedme.feedme, paper=feedme.PAPER, summary=feedme.SUMMARY),
    "reward-conditioning": Variant(
        recipe=reward_conditioning.reward_conditioning,
        paper=reward_conditioning.PAPER,
        summary=reward_conditioning.SUMMARY,
    ),
    "dpo": Variant(recipe=dpo.dpo, paper=dpo.PAPER, summary=dpo.SUMMARY),
    "reward-model": Variant(
        recipe=reward_model.reward_model, paper=reward_model.PAPER, summary=reward_model.SUMMARY
    ),
    "best-of-n": Variant(
        recipe=best_of_n.best_of_n, paper=best_of_n.PAPER, summary=best_of_n.SUMMARY
    ),
    "expert-iteration": Variant(
        recipe=expert_iteration.expert_iteration,
        paper=expert_iteration.PAPER,
        summary=expert_iteration.SUMMARY,
    ),
    "ppo": Variant(recipe=ppo.ppo, paper=ppo.PAPER, summary=ppo.SUMMARY),
    "quark": Variant(recipe=quark.quark, paper=quark.PAPER, summary=quark.SUMMARY),
    "ultrafeedback-dpo": Variant(
        recipe=ultrafeedback_dpo.ultrafeedback_dpo,
        paper=ultrafeedback_dpo.PAPER,
        summary=ultrafeedback_dpo.SUMMARY,
    ),
    "ultrafeedback-bon": Variant(
        recipe=ultrafeedback_bon.ultrafeedback_bon,
        paper=ultrafeedback_bon.PAPER,
        summary=ultrafeedback_bon.SUMMARY,
    ),
    "ultrafeedback-ppo": Variant(
        recipe=ultrafeedback_ppo.ultrafeedback_ppo,
        paper=ultrafeedback_ppo.PAPER,
        summary=ultrafeedback_ppo.SUMMARY,
    ),
    "critique-model": Variant(
        recipe=critique_model.critique_model,
        paper=critique_model.PAPER,
        summary=critique_model.SUMMARY,
    ),
    "chatglm-ppo": Variant(
        recipe=chatglm_ppo.chatglm_ppo, paper=chatglm_ppo.PAPER, summary=chatglm_ppo.SUMMARY
    ),
    "chatglm-dpo": Variant(
        recipe=chatglm_dpo.chatglm_dpo, paper=chatglm_dpo.PAPER, summary=chatglm_dpo.SUMMARY
    ),
    "chatglm-rs": Variant(
        recipe=chatglm_rs.chatglm_rs, paper=chatglm_rs.PAPER, summary=chatglm_rs.SUMMARY
    ),
}
