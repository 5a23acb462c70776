"""Training really trains, resumes bit-exactly, and never gives a result that is not one.

The models are tiny and random, the trainer is TRL itself in its own process: seconds a run.
"""

import hashlib
import json
import os
import shutil
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from waiting import ended, wait_until

from lpfloop.configs.schema import DPOTraining, SFTTraining
from lpfloop.policies.training import (
    MANIFEST,
    Progress,
    TrainingError,
    TrainJob,
    TrainResult,
    accelerate_settings,
    is_whole,
    launch_argv,
    newest_whole,
    parse_row,
    read_job,
    read_steps,
    seal_checkpoint,
    train,
)

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TURN = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def make_model(
    folder: Path, *, layers: int = 2, width: int = 32, dtype: str = "float32", seed: int = 0
) -> Path:
    """Save a random Llama with a byte-level tokenizer and a chat template."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>"]
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {t: i for i, t in enumerate(special + letters)}
    bpe = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<|pad|>", eos_token="<|end|>", chat_template=TEMPLATE,
        extra_special_tokens=["<|user|>", "<|assistant|>"],
    )  # fmt: skip
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(vocabulary), hidden_size=width, intermediate_size=2 * width,
        num_hidden_layers=layers, num_attention_heads=4, max_position_embeddings=256,
        tie_word_embeddings=True, pad_token_id=0, eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    generation = {"temperature": 0.123, "eos_token_id": 1, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def turn(role: str, content: str) -> list[dict[str, str]]:
    """Return one message as TRL's conversational columns hold it."""
    return [{"role": role, "content": content}]


def write_pairs(path: Path, count: int, *, first: int = 0) -> Path:
    """Write pairs whose chosen answers count up and rejected ones down, with lineage columns."""
    numbers = range(first, first + count)
    columns = {
        "pair_id": pa.array([f"pair-{i}" for i in numbers]),
        "chosen_ratings": pa.array([[1, 1]] * count, pa.list_(pa.int8())),
        "rejected_reward": pa.array([None] * count, pa.float64()),
        "prompt": pa.array([turn("user", f"Count from {i}.") for i in numbers], TURN),
        "chosen": pa.array([turn("assistant", f"up {i} {i + 1}") for i in numbers], TURN),
        "rejected": pa.array([turn("assistant", f"down {i} {i - 1}") for i in numbers], TURN),
        "images": pa.array(["a lineage column that TRL would take for pictures"] * count),
    }
    pq.write_table(pa.table(columns), path)
    return path


def write_demonstrations(path: Path, count: int) -> Path:
    """Write demonstrations of counting up, with a lineage column."""
    columns = {
        "demonstration_id": pa.array([f"demo-{i}" for i in range(count)]),
        "prompt": pa.array([turn("user", f"Count from {i}.") for i in range(count)], TURN),
        "completion": pa.array([turn("assistant", f"up {i} {i + 1}") for i in range(count)], TURN),
    }
    pq.write_table(pa.table(columns), path)
    return path


DPO = DPOTraining(
    learning_rate=1e-3, batch_size=4, micro_batch_size=2, max_length=128, epochs=2.0, sft_weight=0.1
)
SFT = SFTTraining(
    learning_rate=3e-3, batch_size=8, micro_batch_size=8, max_length=128, epochs=2.0, warmup_ratio=0
)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with half-precision weights, as shipped, and the parts of a small lake."""
    folder = tmp_path_factory.mktemp("world")
    make_model(folder / "model", dtype="float16")
    write_pairs(folder / "pairs-1.parquet", 48)
    write_pairs(folder / "pairs-2.parquet", 48, first=48)
    write_demonstrations(folder / "demonstrations.parquet", 48)
    return folder


def dpo_job(world: Path, output: Path) -> TrainJob:
    parts = (world / "pairs-1.parquet", world / "pairs-2.parquet")
    return TrainJob(
        method="dpo", model=world / "model", reference=None, data=parts, output=output,
        settings=DPO, seed=2**40 + 7, checkpoint_steps=4,
    )  # fmt: skip


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def starts(work: Path) -> list[int]:
    """The steps from which the worker set out, one a start."""
    rows = [parse_row(line) for line in (work / "metrics.jsonl").read_text().splitlines()]
    return [row["resumed_from"] for row in rows if row and row["event"] == "start"]


@pytest.fixture(scope="module")
def uninterrupted(world: Path, tmp_path_factory: pytest.TempPathFactory):
    """A DPO job run in one go: the job, its result, and the progress that was told."""
    work = tmp_path_factory.mktemp("uninterrupted")
    seen: list[Progress] = []
    job = dpo_job(world, work / "work")
    return job, train(job, log=work / "train.log", on_progress=seen.append), seen


@pytest.mark.model
def test_dpo_raises_the_margin_of_its_pairs(
    uninterrupted: tuple[TrainJob, TrainResult, list[Progress]],
):
    job, result, seen = uninterrupted
    assert [p.step for p in seen] == list(range(1, 49))
    assert seen[0].max_steps == result.steps == 48
    assert abs(seen[0].metrics["rewards/margins"]) < 1e-4
    assert result.metrics["rewards/margins"] > 0.5
    assert result.metrics["rewards/accuracies"] > 0.9
    assert {"loss", "logps/chosen"} <= result.metrics.keys()
    rows = json.loads((job.output / "result.json").read_text())["rows"]
    assert rows == 96


@pytest.mark.model
def test_a_finished_model_has_the_files_of_its_parent(
    world: Path, uninterrupted: tuple[TrainJob, TrainResult, list[Progress]]
):
    job, result, _ = uninterrupted
    names = {p.name for p in result.output.iterdir()}
    assert names == {p.name for p in (world / "model").iterdir()}
    for name in names - {"config.json", "model.safetensors"}:
        assert sha256(result.output / name) == sha256(world / "model" / name), name
    # One checkpoint interval short of the end is the last: the model itself follows.
    assert {p.name for p in (job.output / "checkpoints").glob("checkpoint-*")} == {
        "checkpoint-40", "checkpoint-44",
    }  # fmt: skip


@pytest.mark.model
def test_a_finished_job_is_not_run_again(
    tmp_path: Path, uninterrupted: tuple[TrainJob, TrainResult, list[Progress]]
):
    job, result, _ = uninterrupted
    again = train(job, log=tmp_path / "train.log")
    assert again.metrics == result.metrics
    assert not (tmp_path / "train.log").exists() or not (tmp_path / "train.log").read_text()


@pytest.mark.model
def test_a_killed_job_resumes_from_a_whole_checkpoint_only_and_ends_bit_equal(
    tmp_path: Path, world: Path, uninterrupted: tuple[TrainJob, TrainResult, list[Progress]]
):
    job = dpo_job(world, tmp_path / "work")

    def kill(progress: Progress) -> None:
        if progress.step >= 9:
            rows = (job.output / "metrics.jsonl").read_text().splitlines()
            start = next(r for r in map(parse_row, rows) if r and r["event"] == "start")
            os.kill(start["pid"], signal.SIGKILL)

    with pytest.raises(
        TrainingError, match=r"killed by SIGKILL .* after step \d+ of 48; log: "
    ) as e:
        train(job, log=tmp_path / "train.log", on_progress=kill)
    assert e.value.kind == "killed"
    identity = sha256(job.output / "job.json")
    newest = newest_whole(job.output / "checkpoints", identity)
    assert newest is not None
    (newest / "optimizer.pt").unlink()
    older = newest_whole(job.output / "checkpoints", identity)
    assert older is not None
    resumed = train(job, log=tmp_path / "train.log")
    assert starts(job.output) == [0, int(older.name.removeprefix("checkpoint-"))]
    reference = uninterrupted[1]
    weights = "model.safetensors"
    assert sha256(resumed.output / weights) == sha256(reference.output / weights)
    assert [s.step for s in read_steps(job.output / "metrics.jsonl")] == list(range(1, 49))
    assert resumed.metrics["loss"] == reference.metrics["loss"]


def logprob(model: Path, count: int) -> float:
    """The mean log-probability, per token, that a model gives the demonstrations."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    total = 0.0
    for i in range(count):
        text = f"<|user|>Count from {i}.<|end|><|assistant|>"
        start = len(tokenizer(text)["input_ids"])
        ids = torch.tensor([tokenizer(f"{text}up {i} {i + 1}<|end|>")["input_ids"]])
        with torch.no_grad():
            logps = net(ids).logits.log_softmax(-1)[0, start - 1 : -1]
        total += float(logps.gather(1, ids[0, start:, None]).mean())
    return total / count


@pytest.mark.model
def test_sft_raises_the_log_probability_of_its_demonstrations(tmp_path: Path, world: Path):
    job = TrainJob(
        method="sft", model=world / "model", reference=None,
        data=(world / "demonstrations.parquet",), output=tmp_path / "work", settings=SFT, seed=1,
    )  # fmt: skip
    result = train(job, log=tmp_path / "train.log")
    assert result.steps == 12
    assert not list((job.output / "checkpoints").glob("*"))
    assert logprob(result.output, 8) > logprob(world / "model", 8) + 1


@pytest.mark.model
def test_a_blow_up_is_an_error_and_gives_no_result(tmp_path: Path, world: Path):
    import torch
    from safetensors.torch import load_file, save_file

    model = tmp_path / "model"
    shutil.copytree(world / "model", model)
    weights = load_file(model / "model.safetensors")
    weights["model.layers.1.mlp.down_proj.weight"][3, 5] = torch.inf
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    job = replace(dpo_job(world, tmp_path / "work"), model=model)
    with pytest.raises(TrainingError, match=r"no finite number at step 1; log: .*train.log") as e:
        train(job, log=tmp_path / "train.log")
    assert e.value.kind == "diverged"
    assert not (job.output / "result.json").exists()


@pytest.mark.model
def test_unchanged_weights_are_an_error_and_the_reference_is_the_one_named(
    tmp_path: Path, world: Path
):
    reference = make_model(tmp_path / "reference", seed=1)
    settings = DPO.model_copy(update={"learning_rate": 1e-300, "epochs": 0.1})
    job = replace(dpo_job(world, tmp_path / "work"), reference=reference, settings=settings)
    seen: list[Progress] = []
    with pytest.raises(TrainingError, match="the same as before training; log: ") as e:
        train(job, log=tmp_path / "train.log", on_progress=seen.append)
    assert e.value.kind == "unchanged"
    # Against itself every reward would be zero before the first step.
    assert abs(seen[0].metrics["rewards/chosen"]) > 1e-3


@pytest.mark.model
def test_each_file_of_a_real_checkpoint_deleted_or_cut_unmakes_it(
    tmp_path: Path, uninterrupted: tuple[TrainJob, TrainResult, list[Progress]]
):
    job, _, _ = uninterrupted
    identity = sha256(job.output / "job.json")
    real = job.output / "checkpoints" / "checkpoint-44"
    names = [p.relative_to(real) for p in real.rglob("*") if p.is_file()]
    needed = {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", MANIFEST}
    assert needed | {"model.safetensors"} <= {n.name for n in names}
    for name in names:
        for damage in ("delete", "cut", "flip"):
            copy = tmp_path / "checkpoint-44"
            shutil.copytree(real, copy)
            assert is_whole(copy, identity)
            harm(copy / name, damage)
            assert not is_whole(copy, identity), (name, damage)
            shutil.rmtree(copy)


def harm(path: Path, damage: str) -> None:
    """Delete a file, cut its last byte off, or change its first."""
    data = path.read_bytes()
    if damage == "delete":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[:-1])
    else:
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def test_the_newest_whole_checkpoint_is_by_number_and_of_the_same_job(tmp_path: Path):
    for step in (4, 8, 12, 100):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        (folder / "trainer_state.json").write_text("{}")
        if step != 100:
            seal_checkpoint(folder, "mine" if step < 12 else "another")
    assert newest_whole(tmp_path, "mine") == tmp_path / "checkpoint-8"
    assert newest_whole(tmp_path, "nobody's") is None
    (tmp_path / "checkpoint-8" / "extra.pt").write_text("planted")
    assert newest_whole(tmp_path, "mine") == tmp_path / "checkpoint-4"


def plain_job(tmp_path: Path) -> TrainJob:
    """A job whose model is no model: enough for what is decided before anything is loaded."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"weights")
    write_pairs(tmp_path / "pairs.parquet", 2)
    return TrainJob(
        method="dpo", model=tmp_path / "model", reference=None, data=(tmp_path / "pairs.parquet",),
        output=tmp_path / "work", settings=DPO, seed=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"processes": 3}, r"batch_size 4 is not a multiple of .*3 x 2 = 6"),
        ({"settings": SFT}, "dpo can not be trained with SFTTraining"),
        ({"data": ()}, "no data"),
        ({"data": (Path("/no/such.parquet"),)}, "/no/such.parquet does not exist"),
        ({"reference": Path("/no/model")}, "/no/model does not exist"),
    ],
)
def test_an_unfit_job_is_refused_before_anything_starts(tmp_path: Path, change, message):
    job = replace(plain_job(tmp_path), **change)
    with pytest.raises(TrainingError, match=message) as e:
        train(job, log=tmp_path / "train.log")
    assert e.value.kind == "refused"
    assert not job.output.exists()


def stand_in(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Run `code` in place of the launcher."""
    import sys

    monkeypatch.setattr(
        "lpfloop.policies.training.launch_argv", lambda job: [sys.executable, "-c", code]
    )


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (
            "import os; os.kill(os.getpid(), 9)",
            "killed",
            "killed by SIGKILL .*before its first step",
        ),
        ("import os; os.kill(os.getpid(), 11)", "killed", "killed by SIGSEGV before"),
        ("raise MemoryError('CUDA out of memory')", "failed", "exit code 1: MemoryError: CUDA out"),
        ("pass", "incomplete", "without a complete model"),
        (
            (
                "import subprocess, sys; subprocess.run([sys.executable, '-c', "
                "'import os; os.kill(os.getpid(), 9)'], check=True)"
            ),
            "killed",
            "killed by SIGKILL",
        ),
    ],
)
def test_every_end_of_the_child_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, kind: str, message: str
):
    stand_in(monkeypatch, code)
    with pytest.raises(TrainingError, match=message + r".*; log: .*train\.log$") as e:
        train(plain_job(tmp_path), log=tmp_path / "train.log")
    assert e.value.kind == kind


def test_an_interrupted_parent_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = plain_job(tmp_path)
    rows = [
        {"event": "start", "resumed_from": 0, "pid": 0},
        {"event": "step", "step": 1, "max_steps": 2, "metrics": {"loss": 1.0}},
    ]
    lines = "".join(json.dumps(r) + "\n" for r in rows)
    code = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"open({str(job.folder('metrics.jsonl'))!r}, 'a').write({lines!r})\n"
        "time.sleep(60)"
    )
    stand_in(monkeypatch, code)

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(job, log=tmp_path / "train.log", on_progress=interrupt)
    for pid in (tmp_path / "pids").read_text().split():
        # A killed grandchild is not ours to wait for: the kernel takes a moment to end it.
        wait_until(partial(ended, int(pid)))


def test_a_result_of_another_job_or_with_a_changed_byte_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from lpfloop.policies.training import describe_files, prepare, read_result

    job = plain_job(tmp_path)
    identity = prepare(job)
    model = job.folder("model")
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"trained")
    result = {
        "identity": identity, "steps": 2, "max_steps": 2, "metrics": {"loss": 0.5},
        "files": describe_files(model),
    }  # fmt: skip
    path = job.folder("result.json")
    path.write_text(json.dumps(result))
    assert read_result(job, identity) == result
    assert read_result(job, "another") is None
    for change in ({"steps": 1}, {"metrics": {"loss": float("nan")}}, {"files": {}}):
        path.write_text(json.dumps(result | change))
        assert read_result(job, identity) is None, change
    path.write_text(json.dumps(result)[:-3])
    assert read_result(job, identity) is None
    path.write_text(json.dumps(result))
    (model / "model.safetensors").write_bytes(b"trainee")
    assert read_result(job, identity) is None


def test_job_json_names_every_input_by_its_bytes(tmp_path: Path):
    from lpfloop.policies.training import prepare

    job = plain_job(tmp_path)
    first = prepare(job)
    assert read_job(job.folder("job.json")) == job
    assert prepare(job) == first
    write_pairs(tmp_path / "pairs.parquet", 3)
    assert prepare(job) != first


def test_steps_after_the_point_of_a_resume_are_undone(tmp_path: Path):
    def row(step: int) -> str:
        metrics = {"loss": float(step)}
        return json.dumps({"event": "step", "step": step, "max_steps": 9, "metrics": metrics})

    def start(step: int) -> str:
        return "\n" + json.dumps({"event": "start", "resumed_from": step, "pid": 1})

    path = tmp_path / "metrics.jsonl"
    path.write_text("\n".join([start(0), row(1), row(2), row(3), row(4)[:20]]) + start(2) + "\n")
    assert [s.step for s in read_steps(path)] == [1, 2]


def test_the_launcher_gets_the_jobs_processes_and_no_defaults_of_the_user(tmp_path: Path):
    job = replace(plain_job(tmp_path), processes=2)
    job.output.mkdir()
    argv = launch_argv(job)
    config = Path(argv[argv.index("--config_file") + 1])
    assert json.loads(config.read_text()) == accelerate_settings(2)
    assert argv[argv.index("--num_processes") + 1] == "2"


def test_the_parent_passes_no_secrets_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from lpfloop.policies.training import child_environment

    monkeypatch.setenv("HF_TOKEN", "canary")
    monkeypatch.setenv("LPFLOOP_API_KEY", "canary")
    assert "canary" not in child_environment(plain_job(tmp_path)).values()
