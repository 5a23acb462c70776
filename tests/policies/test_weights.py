"""Weights travel by identity: found on a shared disk, fetched once from a bucket, or refused."""

import json
import os
import shutil
import signal
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
from relayed import Way, relayed_workers, without_disk
from s3 import bad_way

from lpfloop.configs.schema import EngineConfig, RewardConfig
from lpfloop.policies.engines.engine import EngineError, ScoreBatch, ScoreRequest
from lpfloop.policies.workers import weights
from lpfloop.policies.workers.identity import folder_digest, scorer_digest
from lpfloop.policies.workers.weights import CACHE, NodeWeights, travelling
from lpfloop.policies.workers.wire import Frame, encode
from lpfloop.policies.workers.worker_models import WorkerEngine, WorkerScorer
from lpfloop.stores import sealed
from lpfloop.stores.address import STATE, bucket_of, lake_folder
from lpfloop.stores.durable import make_folder, publish_folder
from lpfloop.stores.node_copies import KEPT, held_copy
from lpfloop.stores.objects import objects_of
from lpfloop.stores.records import Message, Prompt


def opening_of(folder: Path, **config: object) -> Frame:
    return travelling(
        {"op": "open", "role": "engine", "kind": "transformers", "model": str(folder)}
        | {"config": config}
    )


def at_hand(opening: Frame) -> Frame:
    """Return the frame that a worker would get, as an agent makes it."""
    node = NodeWeights()
    placed = node.at_hand(opening)
    node.close()
    return placed


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """This machine's place for weights, as an agent sees it."""
    monkeypatch.setenv(CACHE, str(tmp_path / "nvme"))
    return tmp_path / "nvme"


@pytest.fixture
def model(tiny_policy, tmp_path) -> Path:
    return shutil.copytree(tiny_policy, tmp_path / "model")


def altered(folder: Path) -> None:
    """Change one byte of the weights."""
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def published(lake: Path, folder: Path) -> Path:
    """Publish a model as a checkpoint of a run; return its folder on the head."""
    run = lake / "runs" / "a"
    draft = shutil.copytree(folder, make_folder(run / "work") / "draft")
    name = publish_folder(draft, make_folder(run / "checkpoints"))
    objects_of(run).publish(run / "checkpoints" / name)
    return run / "checkpoints" / name


@pytest.fixture
def lake(bucket, tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv(STATE, str(tmp_path / "state"))
    return lake_folder(f"s3://{bucket}/team/lake")


def hashed(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Forget what this process has hashed, as a new one would have; list what it hashes then."""
    read = list[object]()
    plain = sealed._hashed

    def noted(file, alive):
        read.append(file.name)
        return plain(file, alive)

    monkeypatch.setattr(sealed, "_known", {})
    monkeypatch.setattr(sealed, "_hashed", noted)
    return read


def test_a_shared_disk_has_the_weights_and_they_are_hashed_once_for_all_processes(
    model, cache, monkeypatch
):
    opening = opening_of(model)
    settled(model)
    read = hashed(monkeypatch)
    placed = at_hand(opening)
    assert placed == {k: v for k, v in opening.items() if k not in ("weights", "texts")}
    assert str(model / "model.safetensors") in read
    again = hashed(monkeypatch)
    assert at_hand(opening) == placed
    assert again == []


def settled(folder: Path) -> None:
    """Wait until the clock tells a later change from the last one."""
    newest = max(path.stat().st_ctime_ns for path in folder.iterdir())
    time.sleep(max(0, sealed.SETTLED_NS - (time.time_ns() - newest)) / 1e9 + 0.01)


def test_other_bytes_at_the_heads_path_are_refused_by_name(model, cache):
    opening = opening_of(model)
    assert "refused" not in at_hand(opening)
    altered(model)
    refused = at_hand(opening)["refused"]
    assert f"{model} holds other weights (identity " in refused
    assert opening["weights"]["identity"][:16] in refused


def test_weights_that_are_nowhere_are_refused_with_what_to_do(model, cache):
    opening = without_disk(opening_of(model))
    refused = at_hand(opening)["refused"]
    identity = opening["weights"]["identity"]
    for part in (os.uname().nodename, identity[:16], f"/head{model}", "bucket", cache / identity):
        assert str(part) in refused
    # What it says to do helps.
    shutil.copytree(model, cache / identity)
    assert at_hand(opening)["model"] == str(cache / identity)
    altered(cache / identity)
    assert "holds other weights" in at_hand(opening)["refused"]


@pytest.mark.parametrize("fault", ["altered", "weights removed", "settings half copied"])
def test_a_folder_that_is_not_the_model_is_passed_over_for_the_next_place(
    model, cache, tmp_path, fault
):
    opening = opening_of(model)
    whole = shutil.copytree(model, tmp_path / "whole")
    match fault:
        case "altered":
            altered(model)
        case "weights removed":
            (model / "model.safetensors").unlink()
        case _:
            (model / "generation_config.json").write_text('{"eos_')
    own = cache / opening["weights"]["identity"]
    shutil.copytree(model, own)
    refused = at_hand(opening)["refused"]
    said = "holds other weights (identity " if fault == "altered" else "cannot be used ("
    for folder in (model, own):
        assert f"{folder} {said}" in refused
    shutil.rmtree(own)
    shutil.copytree(whole, own)
    assert at_hand(opening)["model"] == str(own)


def test_a_model_of_the_hub_is_found_in_this_machines_own_cache(
    model, cache, tmp_path, monkeypatch
):
    inside = Path("models--owner--name", "snapshots", "a" * 40)
    on_head = shutil.copytree(model, tmp_path / "head" / inside)
    opening = without_disk(opening_of(on_head))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert "are not here" in at_hand(opening)["refused"]
    shutil.copytree(model, tmp_path / "hub" / inside)
    assert at_hand(opening)["model"] == str(tmp_path / "hub" / inside)


def test_two_workers_of_a_machine_fetch_a_checkpoint_once_and_later_ones_need_no_network(
    s3_server, model, lake, cache, monkeypatch
):
    opening = without_disk(opening_of(published(lake, model)))
    with bad_way(s3_server) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as workers:
            one, other = workers.map(at_hand, [opening, opening])
        assert one == other
        assert Path(one["model"]).is_relative_to(cache)
        assert sealed.size_of(model) < way.sent < 1.5 * sealed.size_of(model)
        way.seen.clear()
        # What has just been written is hashed once more: its times may not tell a later change.
        settled(Path(one["model"]))
        assert at_hand(opening) == one
        read = hashed(monkeypatch)
        assert at_hand(opening) == one
        assert (way.seen, read) == ([], [])


def test_a_model_that_no_run_made_is_put_into_the_bucket_once_and_fetched_from_there(
    s3_server, model, lake, cache, tmp_path, monkeypatch
):
    linked = make_folder(tmp_path / "hub" / "snapshot")
    for file in model.iterdir():
        (linked / file.name).symlink_to(file)
    (linked / "pytorch_model.bin").write_bytes(b"nobody opens it")
    with bad_way(s3_server) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        with ThreadPoolExecutor(2) as replicas:
            sent = list(replicas.map(weights.sent_weights, [linked] * 2, [bucket_of(lake)] * 2))
        uploads = [path for method, path in way.seen if method == "PUT"]
    assert len([path for path in uploads if "MANIFEST" in path]) == 1
    assert not any("pytorch_model" in path for path in uploads)
    shutil.rmtree(model)
    placed = Path(at_hand(without_disk({"op": "open", "weights": sent[0]}))["model"])
    assert placed.is_relative_to(cache)
    assert folder_digest(placed) == sent[0]["identity"]


def test_a_damaged_copy_is_fetched_again_and_a_damaged_checkpoint_refused(
    model, lake, cache, monkeypatch
):
    folder = published(lake, model)
    opening = without_disk(opening_of(folder))
    placed = Path(at_hand(opening)["model"])
    altered(placed)
    assert at_hand(opening)["model"] == str(placed)
    sealed.check_folder(placed)
    altered(folder)
    objects_of(lake / "runs" / "a").publish(folder)
    altered(placed)
    refused = at_hand(opening)["refused"]
    assert f"checkpoints/{folder.name}/model.safetensors was altered" in refused
    assert not placed.exists()


@pytest.mark.parametrize("harm", [altered, lambda folder: (folder / "config.json").unlink()])
def test_a_damaged_folder_at_the_heads_path_does_not_hide_the_bucket(model, lake, cache, harm):
    folder = published(lake, model)
    opening = opening_of(folder)
    harm(folder)
    placed = Path(at_hand(opening)["model"])
    assert placed.is_relative_to(cache)
    assert folder_digest(placed) == opening["weights"]["identity"]


def test_a_bucket_out_of_reach_is_waited_for_and_then_told(
    s3_server, model, lake, cache, monkeypatch
):
    opening = without_disk(opening_of(published(lake, model)))
    monkeypatch.setattr(weights, "PAUSE_S", 0.01)
    with bad_way(s3_server) as way:
        monkeypatch.setenv("AWS_ENDPOINT_URL", way.endpoint)
        way.first(12, "503", method="GET")
        assert "refused" not in at_hand(opening)
        shutil.rmtree(cache)
        monkeypatch.setattr(weights, "PATIENCE_S", 0.0)
        way.faults = lambda _method, _path: "503"
        assert "cannot be reached" in at_hand(opening)["refused"]


def test_old_copies_make_room_but_none_that_is_held(model, lake, cache):
    folders = list[Path]()
    for _ in range(KEPT + 3):
        altered_more(model)
        folders.append(published(lake, model))
    addresses = [opening_of(folder)["weights"]["bucket"] for folder in folders]
    first = held_copy(addresses[0], cache)
    for address in addresses[1:]:
        held_copy(address, cache).release()
    there = [folder for folder in folders if (cache / folder.name / folder.name).is_dir()]
    assert there == [folders[0], *folders[-KEPT - 1 :]]
    first.release()
    altered_more(model)
    held_copy(opening_of(published(lake, model))["weights"]["bucket"], cache).release()
    assert not first.folder.exists()


def altered_more(folder: Path) -> None:
    """Make another model of it."""
    path = folder / "config.json"
    told = json.loads(path.read_text())
    path.write_text(json.dumps({**told, "numbered": told.get("numbered", 0) + 1}))


def test_no_key_is_in_what_is_sent(model, lake, monkeypatch):
    sent = encode(opening_of(published(lake, model), template=None)).decode(errors="replace")
    assert "s3://" in sent
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in sent
    assert os.environ["AWS_ACCESS_KEY_ID"] not in sent


def test_a_template_travels_as_text(model, cache, tmp_path):
    template = tmp_path / "chat.jinja"
    template.write_text("{{ messages }}é")
    opening = opening_of(model, template=str(template))
    template.unlink()
    placed = Path(at_hand(opening)["config"]["template"])
    assert placed.is_relative_to(cache)
    assert placed.read_text() == "{{ messages }}é"


@pytest.mark.crash
def test_a_function_of_the_users_own_travels_as_text_and_is_the_one_that_is_meant(
    cache, tmp_path, monkeypatch
):
    file = tmp_path / "mine.py"
    file.write_text("def score(prompts, texts):\n    return [float(len(t)) for t in texts]\n")
    place = f"{file}:score"
    scorer = WorkerScorer(
        place,
        RewardConfig(model=place),
        start=relayed_workers(log=tmp_path / "log", way=lambda frame: gone(file, frame)),
        function=scorer_digest(place),
        elsewhere=True,
    )
    prompt = Prompt(
        prompt_id="p",
        task="count",
        split="train",
        messages=(Message(role="user", content="how many?"),),
        reference=None,
        checks=(),
        source="test",
    )
    request = ScoreRequest(
        request_id="1", messages=(Message(role="assistant", content="four"),), prompt=prompt
    )
    (result,) = scorer.score([ScoreBatch(key="a", requests=(request,))])
    scorer.close()
    assert result.scores == (4.0,)
    assert not file.exists()


def gone(file: Path, frame: Frame) -> Frame:
    """Remove a file, which the machine of the worker does not have."""
    file.unlink(missing_ok=True)
    return frame


SAID = (Message(role="user", content="1+1"), Message(role="assistant", content="2"))


def engine_elsewhere(folder: Path, log: Path, way: Way = without_disk) -> WorkerEngine:
    config = EngineConfig(kind="transformers", cpu_threads=1, restarts=1)
    start = relayed_workers(log=log, way=way)
    return WorkerEngine("transformers", str(folder), config, start=start, elsewhere=True)


@pytest.mark.model
@pytest.mark.crash
def test_a_loaded_engine_elsewhere_fetches_new_weights_and_so_does_its_successor(
    model, lake, cache, tmp_path
):
    engine = engine_elsewhere(published(lake, model), tmp_path / "log")
    before = engine.logprobs([SAID])
    engine.reload(published(lake, renormed(model)))
    after = engine.logprobs([SAID])
    assert after != before
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    assert engine.logprobs([SAID]) == after
    engine.close()


@pytest.mark.model
@pytest.mark.crash
def test_an_engine_elsewhere_never_loads_what_is_not_meant(model, cache, tmp_path):
    nowhere = engine_elsewhere(model, tmp_path / "log")
    with pytest.raises(EngineError, match=r"^on .*: the weights .* are not here: put them on a"):
        nowhere.ready()
    nowhere.close()
    engine = engine_elsewhere(model, tmp_path / "log", lambda frame: frame)
    engine.ready()
    meant = renormed(model)
    with pytest.raises(EngineError, match=r"^it cannot reload: on .* holds other weights"):
        reload_meaning(engine, meant, model)
    # A worker that is restarted looks at the bytes again.
    altered(model)
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"^on .* holds other weights"):
        engine.logprobs([SAID])
    engine.close()


def reload_meaning(engine: WorkerEngine, meant: Path, folder: Path) -> None:
    """Have an engine reload a folder that holds other bytes than the head's."""
    sent = weights.sent_weights(meant)

    def told(_folder: Path, _bucket: str | None) -> Frame:
        return {**sent, "path": str(folder)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lpfloop.policies.workers.worker_models.sent_weights", told)
        engine.reload(folder)


def renormed(folder: Path) -> Path:
    """Return a copy with other weights."""
    from safetensors.torch import load_file, save_file

    copy = shutil.copytree(folder, folder.parent / "renormed")
    tensors = load_file(copy / "model.safetensors")
    changed = {name: tensor * 1.1 for name, tensor in tensors.items()}
    save_file(changed, copy / "model.safetensors", metadata={"format": "pt"})
    return copy
