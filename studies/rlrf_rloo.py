"""RLRF against RLOO at equal generated tokens."""

from rlrf_arms import RLOO
from rlrf_groups import against

STUDY = against(RLOO)
