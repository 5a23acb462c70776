"""Two real processes that train together: the work of each, and the state of both afterwards."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lpfloop.policies.online import ranks

RANK = """
import json, sys
import torch
from lpfloop.policies.online.ranks import Ranks

rank, store = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
ranks = Ranks()
own = list(ranks.share([1, 2, 3, 4, 5]))
told = ranks.broadcast({"drawn": 7} if ranks.is_first else None)
sums = torch.tensor([1.0 + rank, 0.0])
ranks.sum(sums)
both, single = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
both.grad = torch.tensor([1.0, 3.0 + 2 * rank])
if rank == 1:
    single.grad = torch.tensor([4.0, 0.0])
ranks.average_gradients([both, single])
print(json.dumps([own, told, sums.tolist(), both.grad.tolist(), single.grad.tolist()]))
"""


def test_two_processes(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", RANK]
    started = [
        subprocess.Popen([*argv, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE)
        for rank in range(2)
    ]
    said = [json.loads(process.communicate(timeout=600)[0]) for process in started]
    own = [said[0].pop(0), said[1].pop(0)]
    assert own == [[[1, True], [3, True], [5, True]], [[2, True], [4, True], [1, False]]]
    assert said[0] == said[1] == [{"drawn": 7}, [3.0, 0.0], [1.0, 4.0], [2.0, 0.0]]


def test_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "BUCKET", 5)
    tensors = [torch.zeros(n) for n in (2, 3, 4, 9)] + [torch.zeros(1, dtype=torch.bfloat16)]
    sizes = [[tensor.numel() for tensor in bucket] for bucket in ranks.buckets(tensors)]
    assert sizes == [[2, 3], [4], [9], [1]]
