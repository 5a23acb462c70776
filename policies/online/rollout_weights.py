# pyright: basic
"""The folder from which the sampler reads the policy's present weights, at every step anew."""

import copy
from pathlib import Path

from huggingface_hub import save_torch_state_dict
from torch import Tensor
from transformers import PreTrainedConfig

from ...stores.durable import make_folder
from ..trainers.job import TrainJob
from ..trainers.trained_model import copy_tokenizer

DRAFT = "draft"
CONFIG = "config.json"
LARGEST_FILE = "5GB"


class RolloutWeights:
    """Writes a policy's weights where its sampler reads them."""

    def __init__(self, job: TrainJob, folder: Path) -> None:
        self.folder = make_folder(folder)
        copy_tokenizer(job.model, folder)

    def write(self, weights: dict[str, Tensor], config: PreTrainedConfig) -> None:
        """Write the present weights; each file is replaced as a whole.

        A sampler may have mapped the old files into its memory, where a shortened one is fatal.
        """
        draft = make_folder(self.folder / DRAFT)
        config = copy.deepcopy(config)
        config.dtype = next(iter(weights.values())).dtype
        config.save_pretrained(draft)
        pattern = "model{suffix}.safetensors"
        save_torch_state_dict(weights, draft, filename_pattern=pattern, max_shard_size=LARGEST_FILE)
        for path in sorted(draft.iterdir()):
            path.replace(self.folder / path.name)
