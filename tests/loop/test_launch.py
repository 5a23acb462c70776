"""`lpfloop launch`: what Slurm, Ray and Kubernetes are handed, and what comes of it here."""

import ast
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from allocation import allocate
from commands import call
from typer.testing import CliRunner
from waiting import wait_until

from lpfloop.loop.cli.app import Exit, app
from lpfloop.loop.daemon.launching import FIRST_PORT, PORTS, own_port
from lpfloop.stores.address import STATE

LONG_S = 500
SHARED_MEMORY = "/dev/shm"  # noqa: S108 -- named, not used
CONTROL = {
    "squeue": "echo RUNNING",
    "scontrol": 'printf "%s\\n" "$@" > "$TOLD/scontrol"',
}


def launched(*words: object) -> str:
    told = CliRunner().invoke(app, ["launch", *map(str, words)])
    assert told.exit_code == Exit.DONE, told.stderr
    return told.stdout


def refused(*words: object) -> str:
    told = CliRunner().invoke(app, ["launch", *map(str, words)])
    assert told.exit_code == Exit.BAD_INPUT
    assert told.stdout == ""
    return told.stderr


def test_of_several_nodes_the_first_has_the_loop_and_the_others_workers(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    text = launched("slurm", "--print", "--run", "a", "--lake", lake, "--nodes", 4, "--gpus", 8)
    for line in ("--nodes=4", "--gpus-per-node=8", "--no-kill", "--signal=B:TERM@120"):
        assert f"#SBATCH {line}\n" in text
    port = own_port("a")
    assert "srun --nodes=1 --ntasks=1 --relative=0 --cpus-per-task=8 " in text
    assert "srun --nodes=3 --ntasks=3 --relative=1 --cpus-per-task=8 " in text
    assert f'worker --join "$(hostname):{port}" --token-file "$token" &' in text
    assert "--set=policy.engine.place=tcp --set=critic.engine.place=tcp " in text
    assert f"--set=workers.listen=0.0.0.0:{port} --set=workers.token_file={lake}/a.join" in text
    assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_nodes_that_train_have_no_worker(tmp_path: Path) -> None:
    training = ("--set", "training.nodes=2", "--set", "training.launcher=srun")
    where = ("slurm", "--print", "--run", "a", "--lake", tmp_path)
    text = launched(*where, "--nodes", 5, "--", *training)
    assert "srun --nodes=3 --ntasks=3 --relative=2 " in text
    text = launched(*where, "--nodes", 2, "--", *training)
    assert "worker" not in text
    assert "place=tcp" not in text


def test_what_the_configuration_says_of_places_and_addresses_stands(tmp_path: Path) -> None:
    own = ("policy.engine.place={local: 1, tcp: 2}", "workers.listen=10.0.0.1:7000")
    token = tmp_path / "known.token"
    token.write_text("a token that is long enough")
    words = [w for setting in (*own, f"workers.token_file={token}") for w in ("--set", setting)]
    text = launched(
        "slurm", "--print", "--run", "a", "--lake", tmp_path, "--nodes", 2, "--", *words
    )
    assert "place=tcp" not in text
    assert f":{own_port('a')}" not in text
    assert '--join "$(hostname):7000"' in text
    assert f"token={token}\n" in text


def test_each_run_has_a_port_that_stays_its_own() -> None:
    ports = {own_port(f"run-{number}") for number in range(100)}
    assert len(ports) > 90
    assert all(FIRST_PORT <= port < FIRST_PORT + PORTS for port in ports)
    assert own_port("a") == own_port("a")


SEVERAL = ("slurm", "--print", "--run", "a", "--nodes", "3")
K8S = ("k8s", "--print", "--run", "a")
BUCKET = ("--lake", "s3://bucket/lake")
REFUSED = {
    "no node": (("slurm", "--run", "a", "--nodes", "0"), "greater than or equal to 1"),
    "endpoints only": (
        (*SEVERAL, "--", "--policy", "http://h/v1", "--critic", "http://h/v1"),
        "every model of this run is at an endpoint, and 2 nodes would have nothing to do",
    ),
    "too few nodes": (
        (*SEVERAL, "--", "--set", "training.nodes=4", "--set", "training.launcher=srun"),
        "--nodes 3: training.nodes=4; ask for as many at least, or lower it",
    ),
    "another launcher": (
        (*SEVERAL, "--", "--set", "training.nodes=2", "--set", "training.launcher=ray"),
        "launch slurm: training.launcher=ray starts nothing there; choose srun",
    ),
    "unknown setting": ((*SEVERAL, "--", "--set", "trai=3"), "unknown key 'trai'"),
    "unknown option": ((*SEVERAL, "--", "--nonsense"), "No such option: --nonsense"),
    "nodes of ray": (
        ("ray", "--print", "--run", "a", "--nodes", "2"),
        "--nodes 2: a Ray cluster has its nodes; leave it out",
    ),
    "no image": ((*K8S, *BUCKET), "name the image that has lpfloop: --image"),
    "a lake that pods do not see": (
        (*K8S, "--image", "i", "--lake", "/lake"),
        "the pods must see the lake: give --lake s3://BUCKET/PREFIX, or --claim",
    ),
    "a claim beside a bucket": ((*K8S, "--image", "i", "--claim", "c", *BUCKET), "must see"),
    "a lake of no whole path": (
        (*K8S, "--image", "i", "--claim", "c", "--lake", "lake"),
        "--lake lake: --claim c is mounted there in every pod; name a whole path",
    ),
    "a name": (
        ("k8s", "--print", "--image", "i", "--run", "a_b", *BUCKET),
        "--run a_b: names in Kubernetes are of a-z, 0-9 and dashes inside",
    ),
    "an image": ((*K8S, "--image", "i\nx: y", *BUCKET), "not the name of an image"),
    "memory": ((*K8S, "--image", "i", "--mem", "lots", *BUCKET), "--mem lots: write an amount"),
    "storage": ((*K8S, "--image", "i", "--storage", "lots", *BUCKET), "--storage lots"),
    "a launcher of other clusters": (
        (*K8S, "--image", "i", *BUCKET, "--", "--set", "training.launcher=srun"),
        "launch k8s: training.launcher=srun starts nothing there; choose local",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused_in_one_sentence(name, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(STATE, str(tmp_path))
    words, sentence = REFUSED[name]
    assert sentence in " ".join(refused(*words).split())


def test_a_folder_that_each_machine_has_for_itself_is_warned_of(tmp_path: Path) -> None:
    told = CliRunner().invoke(app, ["launch", *SEVERAL, "--lake", f"{SHARED_MEMORY}/lake"])
    assert told.exit_code == Exit.DONE
    assert f"--lake {SHARED_MEMORY}/lake: every machine has such a folder of its own" in told.stderr


@pytest.mark.parametrize(("scheduler", "program"), [("slurm", "sbatch"), ("k8s", "kubectl")])
def test_without_print_the_schedulers_own_program_gets_the_text(
    scheduler, program, tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv(STATE, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    words = ("--run", "a", *(() if scheduler == "slurm" else ("--image", "i")), *BUCKET)
    assert f"there is no `{program}` here; --print shows" in refused(scheduler, *words)
    printed = launched(scheduler, "--print", *words)
    (tmp_path / program).write_text(f'#!/bin/sh\n/bin/cat > "{tmp_path}/got"\necho "job 17"\n')
    (tmp_path / program).chmod(0o755)
    assert launched(scheduler, *words) == "job 17\n"
    assert (tmp_path / "got").read_text() == printed
    (tmp_path / program).write_text("#!/bin/sh\necho 'no such partition' >&2\nexit 1\n")
    assert f"`{program}` refused it: no such partition" in refused(scheduler, *words)


def test_a_ray_job_runs_the_loop_and_its_models_in_actors(tmp_path: Path) -> None:
    nasty = 'it\'s "$HOME"'
    words = ("ray", "--print", "--run", "a", "--lake", tmp_path, "--gpus", 2)
    text = launched(*words, "--", "--set", f"prompts.task={nasty}")
    submitted = ast.literal_eval(text.partition("job = ")[2].rpartition("\n\nprint")[0])
    assert submitted["entrypoint_num_gpus"] == 2
    assert submitted["runtime_env"]["env_vars"] == {"RAY_JOB_STOP_WAIT_TIME_S": "120"}
    # What the shell of the job would run.
    shown = f"python() {{ printf '%s\\n' \"$@\"; }}\n{submitted['entrypoint'].replace('exec ', '')}"
    asked = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, check=True)
    assert asked.stdout.splitlines() == [
        *("-P", "-m", "lpfloop", "run", "--run", "a", "--lake", str(tmp_path)),
        *("--set", f"prompts.task={nasty}"),
        *("--set=policy.engine.place=ray", "--set=critic.engine.place=ray"),
    ]
    text = launched(*words, "--", "--set", "training.nodes=2", "--set", "training.launcher=ray")
    assert "'entrypoint_num_gpus': 0" in text


def by_kind(text: str) -> dict[str, dict]:
    found = {}
    for manifest in yaml.safe_load_all(text):
        found[manifest["metadata"]["name"]] = manifest
    return found


def test_kubernetes_gets_a_job_for_the_loop_and_one_for_the_workers(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv(STATE, str(tmp_path))
    words = ("k8s", "--print", "--run", "a", "--image", "r/i:1", "--nodes", 4, "--gpus", 8)
    found = by_kind(launched(*words, *BUCKET))
    assert set(found) == {"lpfloop-a-state", "lpfloop-a-head", "lpfloop-a-loop", "lpfloop-a-worker"}
    loop, workers = found["lpfloop-a-loop"]["spec"], found["lpfloop-a-worker"]["spec"]
    assert (loop["parallelism"], workers["parallelism"]) == (1, 3)
    service = found["lpfloop-a-head"]["spec"]
    assert service["selector"] == loop["template"]["metadata"]["labels"]
    port = own_port("a")
    assert service["ports"][0]["port"] == port
    script = workers["template"]["spec"]["containers"][0]["command"][2]
    assert f"lpfloop worker --join lpfloop-a-head:{port} --one-run &" in script
    script = loop["template"]["spec"]["containers"][0]["command"][2]
    assert script.startswith("if [ -e /var/lib/lpfloop/s3/bucket+lake/runs/a/journal.sqlite ]")
    assert f"workers.listen=0.0.0.0:{port} " in script
    for job in (loop, workers):
        pod = job["template"]["spec"]
        (container,) = pod["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
        assert container["resources"]["requests"] == {"cpu": "8", "memory": "64Gi"}
        assert pod["terminationGracePeriodSeconds"] == 120
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert subprocess.run(["sh", "-n", "-c", container["command"][2]], check=False)
    rules = {
        code: rule["action"]
        for rule in loop["podFailurePolicy"]["rules"]
        for code in rule.get("onExitCodes", {"values": ()})["values"]
    }
    again = {Exit.STOPPED: "Ignore"}
    final = (Exit.BAD_INPUT, Exit.NOTHING_TO_TRAIN_ON, Exit.REGRESSED)
    assert rules == again | dict.fromkeys(final, "FailJob")


def test_a_lake_in_a_volume_is_in_every_pod_and_one_node_needs_no_secret(tmp_path) -> None:
    words = ("k8s", "--print", "--run", "a", "--image", "i", "--claim", "team", "--lake", "/lake")
    several = by_kind(launched(*words, "--nodes", 2))
    for name in ("lpfloop-a-loop", "lpfloop-a-worker"):
        pod = several[name]["spec"]["template"]["spec"]
        claims = [v["persistentVolumeClaim"] for v in pod["volumes"] if v["name"] == "lake"]
        assert claims == [{"claimName": "team"}]
    one = by_kind(launched(*words))
    assert list(one) == ["lpfloop-a-loop"]
    pod = one["lpfloop-a-loop"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["envFrom"][0]["secretRef"]["optional"]
    assert not any("secret" in volume for volume in pod["volumes"])


def test_a_worker_that_is_told_to_go_has_not_finished_its_job(tmp_path: Path) -> None:
    text = launched(
        "k8s", "--print", "--run", "a", "--image", "i", "--claim", "c", "--lake", "/l", "--nodes", 2
    )
    pod = by_kind(text)["lpfloop-a-worker"]["spec"]["template"]["spec"]
    program = tmp_path / "lpfloop"
    for body, code in (("trap 'exit 0' TERM; touch $UP; sleep 60 & wait $!", 143), ("exit 0", 0)):
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        up = tmp_path / "up"
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "UP": str(up)}
        started = subprocess.Popen(
            pod["containers"][0]["command"], env=environment, start_new_session=True
        )
        if code:
            wait_until(up.exists, timeout_s=300)
            started.send_signal(signal.SIGTERM)
        assert started.wait(300) == code


SETTINGS = {
    "policy.engine.kind": "transformers",
    "policy.engine.cpu_threads": "1",
    "critic.model": "none",
    "critic.engine.kind": "scripted",
    "prompts.evaluated": "16",
    "prompts.deciding": "16",
    "prompts.chunk": "2",
}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen]]:
    """Put this process into an allocation of three nodes; end what was started in it."""
    programs = tmp_path / "bin"
    allocate(monkeypatch, programs, 3)
    for name, body in CONTROL.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("TOLD", str(tmp_path))
    started = list[subprocess.Popen]()
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.crash
def test_a_job_of_three_nodes_is_requeued_by_its_time_and_ends_with_the_rows_of_one(
    tmp_path: Path, job: list[subprocess.Popen]
) -> None:
    words = [w for name, value in SETTINGS.items() for w in ("--set", f"{name}={value}")]
    alone, lake = tmp_path / "alone", tmp_path / "lake"
    code, _, told = call(alone, "run", "--run", "a", "--iterations", 0, *words)
    assert code == 0, told
    lake.mkdir()
    text = launched(
        *("slurm", "--print", "--run", "a", "--lake", lake, "--nodes", 3, "--gpus", 0),
        *("--", "--iterations", 0, *words),
    )
    with (tmp_path / "log").open("ab") as log:

        def begin() -> subprocess.Popen:
            job.append(subprocess.Popen(["bash", "-c", text], stdout=log, stderr=log))
            return job[-1]

        first = begin()
        wait_until(lambda: done(lake) > 1 or first.poll() is not None, timeout_s=LONG_S)
        first.send_signal(signal.SIGTERM)
        assert first.wait(LONG_S) == 0, (tmp_path / "log").read_text()
        assert (tmp_path / "scontrol").read_text().split() == ["requeue", "1"]
        assert begin().wait(LONG_S) == 0, (tmp_path / "log").read_text()
    wait_until(lambda: not workers_of(lake), timeout_s=LONG_S)
    digests = [call(place, "lake", "digest", "a")[1] for place in (alone, lake)]
    assert digests[0] == digests[1]
    assert (lake / "a.join.token").stat().st_mode & 0o777 == 0o600


def done(lake: Path) -> int:
    """Return how many units a run has committed."""
    if not (lake / "runs" / "a" / "journal.sqlite").exists():
        return 0
    code, said, _ = call(lake, "status", "a", "--json")
    turns = [] if code else json.loads(said)["iterations"]
    return sum(stage["done"] for turn in turns for stage in turn["stages"])


def workers_of(lake: Path) -> list[str]:
    """Return the workers of a lake that are still there."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if f"--token-file {lake}" in line]
