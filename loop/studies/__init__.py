"""The claims of the papers as studies: what is run, what is found, whether it holds.

A study is one file with its arms and its reading of their rows; `STUDIES` lists them.
"""

from collections.abc import Mapping

from . import (
    alpacafarm_noise,
    alpacafarm_table2,
    alpacafarm_transfer,
    chatglm_l2,
    chatglm_length,
    chatglm_next_token,
    chatglm_reference,
    chatglm_variance,
    distilled_critiques,
    moving_judge,
    rlrf_beta,
    rlrf_groups,
    rlrf_length,
    rlrf_reference,
    rlrf_resampling,
    rlrf_rounds,
    rlrf_samples,
    rlrf_table2,
    ultrafeedback_best_of,
    ultrafeedback_finegrained,
)
from .study import Study

STUDIES: Mapping[str, Study] = {
    study.name: study
    for study in (
        rlrf_table2.STUDY,
        rlrf_reference.STUDY,
        rlrf_samples.STUDY,
        rlrf_beta.STUDY,
        rlrf_length.STUDY,
        rlrf_resampling.STUDY,
        rlrf_rounds.STUDY,
        rlrf_groups.AGAINST_GRPO,
        rlrf_groups.AGAINST_RLOO,
        alpacafarm_table2.STUDY,
        alpacafarm_noise.STUDY,
        alpacafarm_transfer.STUDY,
        ultrafeedback_best_of.STUDY,
        ultrafeedback_finegrained.STUDY,
        chatglm_length.STUDY,
        chatglm_l2.STUDY,
        chatglm_reference.STUDY,
        chatglm_next_token.STUDY,
        chatglm_variance.STUDY,
        distilled_critiques.STUDY,
        moving_judge.STUDY,
    )
}
