"""RLRF against GRPO at equal generated tokens."""

from rlrf_arms import GRPO
from rlrf_groups import against

STUDY = against(GRPO)
