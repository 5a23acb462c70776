"""Runs whose workers join from elsewhere make the rows that any run makes."""

import json
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import call
from joined import TOKEN, Machines
from preloaded import INTERPRETER
from waiting import wait_until

from lpfloop.configs.load import load_config, parse_set
from lpfloop.configs.schema import ConfigError
from lpfloop.loop.daemon.control import with_live
from lpfloop.loop.daemon.joining import TOKEN as TOKEN_FILE
from lpfloop.loop.daemon.joining import join_command, listener_of

SETTINGS = {
    "policy.engine.kind": "transformers",
    "policy.engine.cpu_threads": "1",
    "critic.model": "none",
    "critic.engine.kind": "scripted",
    "prompts.evaluated": "16",
    "prompts.deciding": "16",
    "prompts.chunk": "2",
}
RUN = "tiny-rlrf"
PAGE = Path(__file__).parent.parent.parent / "docs" / "workers.md"
LONG_S = 300


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    started = Machines(tmp_path)
    yield started
    started.end()


@pytest.mark.parametrize("place", ["tcp", "{local: 1, tcp: 2}"])
def test_a_place_where_nobody_listens_is_refused_with_the_line_to_write(
    tmp_path: Path, place: str
) -> None:
    code, _, told = call(tmp_path / "lake", "run", "--set", f"policy.engine.place={place}")
    assert code == 2
    assert f"policy.engine.place={place}: workers.listen does not say where workers join" in told
    assert "--set workers.listen=0.0.0.0:7377" in told
    assert not (tmp_path / "lake").exists()


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("listen=here", "an address is HOST:PORT"),
        ("listen=192.0.2.1:7377", "workers.listen=192.0.2.1:7377: cannot listen there"),
        ("token_file=none.such", "none.such: the token cannot be read"),
        ("tls_key=a.pem", "tls_certificate and tls_key go together"),
    ],
)
def test_what_cannot_be_listened_with_is_refused(tmp_path: Path, setting: str, wanted: str) -> None:
    given = ["--set", "workers.listen=127.0.0.1:0", "--set", f"workers.{setting}"]
    code, _, told = call(tmp_path / "lake", "run", *given)
    assert (code, wanted in told) == (2, True)


def test_a_run_makes_its_token_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    config = load_config("tiny", None, ("workers.listen=127.0.0.1:0",), {})
    found = set[bytes]()
    for _ in range(2):
        listener = listener_of(config, tmp_path)
        assert listener is not None
        listener.close()
        found.add((tmp_path / TOKEN_FILE).read_bytes())
    assert len(found) == 1
    assert (tmp_path / TOKEN_FILE).stat().st_mode & 0o777 == 0o600
    command = join_command(config, tmp_path, "0.0.0.0:7377")
    assert command.startswith(f"lpfloop worker --join {socket.gethostname()}:7377 --token-file /")


def test_replicas_and_places_are_live_and_checked_before_they_are_kept() -> None:
    config = load_config("tiny", None, (), {})
    more = with_live(config, "policy.engine.replicas", 3)
    assert more.policy.engine.replicas == 3
    assert with_live(more, "reward.replicas", "auto").reward.replicas == "auto"
    with pytest.raises(ConfigError, match=r"policy\.engine\.place=tcp: workers\.listen"):
        with_live(config, "policy.engine.place", "tcp")
    listening = load_config("tiny", None, ("workers.listen=127.0.0.1:0",), {})
    assert with_live(listening, "policy.engine.place", {"local": 1, "tcp": 2})
    with pytest.raises(ConfigError, match="says how many there are in each place"):
        with_live(with_live(more, "policy.engine.place", {"local": 1}), "policy.engine.replicas", 2)


SHOWN = re.findall(r"^```sh joined\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("command", [line for block in SHOWN for line in block.splitlines()])
def test_the_commands_of_the_page_are_understood(tmp_path: Path, command: str) -> None:
    action, *rest = shlex.split(command)[1:]
    if action == "run":
        code, _, told = call(tmp_path / "lake", action, *rest, "--dry-run")
        assert code == 0, told
    elif action == "worker":
        assert told_by_worker(tmp_path, rest) == "join.token: the token cannot be read"
    else:
        config = load_config("tiny", None, ("workers.listen=127.0.0.1:0",), {})
        change = parse_set(rest[1])
        assert with_live(config, change.path, change.value) != config


def told_by_worker(folder: Path, options: list[str]) -> str:
    """Return why a worker does not start, up to the reason."""
    command = [INTERPRETER, "-m", "lpfloop", "worker", *options]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    return found.stderr.removeprefix("error: ").rpartition(":")[0]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.crash
def test_joined_workers_make_the_rows_of_this_machine_also_when_the_head_is_killed(
    tmp_path: Path, machines: Machines
) -> None:
    settings = [f"--set={name}={value}" for name, value in SETTINGS.items()]
    alone, joined = tmp_path / "alone", tmp_path / "joined"
    code, _, told = call(alone, "run", "--iterations", 0, *settings)
    assert code == 0, told

    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    workers = [machines.start(address) for _ in range(2)]
    of_one_run = machines.start(address, "--one-run")
    elsewhere = [f"--set=workers.listen={address}", f"--set=workers.token_file={machines.token}"]
    command = [INTERPRETER, "-m", "lpfloop", "run", "--lake", str(joined), "--iterations", "0"]
    head = subprocess.Popen(
        [*command, *settings, *elsewhere, "--set=policy.engine.place=tcp"],
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: bool(who_joined(joined)), timeout_s=LONG_S)
    before = done(joined)
    wait_until(lambda: done(joined) > before + 1, timeout_s=LONG_S)
    assert who_joined(joined)["address"] == address
    assert call(joined, "ctl", "set", "policy.engine.replicas=1")[0] == 0
    head.send_signal(signal.SIGKILL)
    head.communicate()
    assert of_one_run.poll() is None

    code, _, told = call(joined, "resume")
    assert code == 0, told
    assert "workers join by `lpfloop worker --join" in told
    assert call(joined, "lake", "digest")[1] == call(alone, "lake", "digest")[1]
    assert [worker.poll() for worker in workers] == [None, None]
    assert of_one_run.wait(LONG_S) == 0
    assert TOKEN.decode() not in (joined / "runs" / RUN / "logs" / "run.jsonl").read_text()


def who_joined(lake: Path) -> dict[str, Any]:
    """Return what a run says of the workers that have joined; {} if there is none."""
    code, said, _ = call(lake, "status", "--json")
    workers = None if code else json.loads(said)["daemon"]["workers"]
    return workers if workers and workers["machines"] else {}


def done(lake: Path) -> int:
    """Return how many units a run has committed."""
    if not (lake / "runs" / RUN / "journal.sqlite").exists():
        return 0
    code, said, _ = call(lake, "status", "--json")
    turns = [] if code else json.loads(said)["iterations"]
    return sum(stage["done"] for turn in turns for stage in turn["stages"])
