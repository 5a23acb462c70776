"""Workers that join by TCP give what those of this machine give, whatever becomes of the line."""

import os
import signal
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from faulty import ordered
from joined import ENDS_S, LOCAL, MANY, TCP, TOKEN, Machines, SlowLine, scripted_pool
from waiting import ended, wait_until

from lpfloop.configs.schema import EngineConfig, RewardConfig
from lpfloop.policies.engines.engine import Batch, EngineError, Request, Sampling
from lpfloop.policies.workers import (
    inquest,
    join_listener,
    join_protocol,
    machine_queue,
    sent_stream,
    supervised,
    wire,
    worker_agent,
)
from lpfloop.policies.workers.join_listener import STRANGERS, JoinListener
from lpfloop.policies.workers.join_protocol import RELAY, Heartbeat, Parcel, control
from lpfloop.policies.workers.open import open_engine
from lpfloop.policies.workers.places import Berth
from lpfloop.policies.workers.pool import EnginePool
from lpfloop.policies.workers.worker_agent import WorkerAgent
from lpfloop.policies.workers.worker_offer import Offer
from lpfloop.stores.keys import derive_seed
from lpfloop.stores.records import Message

pytestmark = pytest.mark.crash

PULSE = Heartbeat(beat_s=0.5, silence_s=120.0)
"""A busy machine is no silence."""
SHORT = Heartbeat(beat_s=0.5, silence_s=4.0)
"""Where silence is to be noticed."""
Listening = Callable[..., JoinListener]
Opened = Callable[..., EnginePool]

SCRIPT = """
import os
import time
def slowly(request, sampling):
    time.sleep(0.01)
    return f"slow {request.seed}"

def broken(request, sampling):
    if "PYTHON_BROKEN" in os.environ:
        os._exit(3)
    return slowly(request, sampling)

def felling(request, sampling):
    order, *marker = request.messages[-1].content.split()
    if marker:
        open(*marker, "w").close()
        time.sleep(3600)
    return f"{order} {request.seed}"
"""


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listening]:
    """Listen for workers, which are lost by silence only where a test gives a short pulse."""
    monkeypatch.setattr(supervised, "LONGEST_BACKOFF_S", 0.01)
    open_: list[JoinListener] = []

    def listen(address: str = "127.0.0.1:0", **options: object) -> JoinListener:
        given = {"pulse": PULSE, **options}
        open_.append(JoinListener(address, TOKEN, **given))  # type: ignore[arg-type]
        return open_[-1]

    yield listen
    for listener in open_:
        listener.close()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    (tmp_path / "slow.py").write_text(SCRIPT)
    started = Machines(tmp_path, tmp_path)
    yield started
    started.end()


@pytest.fixture
def opened(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    """Open pools of scripted replicas, here or at machines that join."""
    for folder in (root / "tests" / "support", tmp_path):
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    pools: list[EnginePool] = []

    def open_pool(
        listener: JoinListener,
        *berths: Berth,
        script: str = "faulty:behave",
        group: str = "model",
    ) -> EnginePool:
        pools.append(scripted_pool(listener, berths, tmp_path, script, group))
        return pools[-1]

    yield open_pool
    for pool in pools:
        pool.close()


def batches(count: int, n: int = 2) -> list[Batch]:
    return [ordered(f"b{number:04}", *["w"] * n) for number in range(count)]


def wanted(count: int, n: int = 2) -> dict[str, str]:
    return {f"b{number:04}/{i}": f"w {500 + i}" for number in range(count) for i in range(n)}


def texts(pool: EnginePool, asked: Iterable[Batch]) -> dict[str, str]:
    """Draw all batches; no key may come twice."""
    found = dict[str, str]()
    for result in pool.generate(asked):
        answers = {c.request_id: c.text for c in result.completions}
        assert not found.keys() & answers.keys()
        found |= answers
    return found


def count(listener: JoinListener) -> int:
    return len(listener.joined.machines)


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_machines_that_join_and_this_one_share_the_work(
    listening: Listening, machines: Machines, opened: Opened
) -> None:
    listener = listening()
    for _ in range(2):
        machines.start(listener.address)
    pool = opened(listener, LOCAL, TCP, TCP)
    wait_until(lambda: count(listener) == 2)
    assert texts(pool, batches(150)) == wanted(150)

    def all_are_taken() -> bool:
        # The quick one may do all before the others are even asked for.
        assert texts(pool, batches(2)) == wanted(2)
        return listener.joined.idle == 0

    wait_until(all_are_taken)


def test_a_pool_takes_each_machine_that_joins_and_goes_on_without_one_that_leaves(
    listening: Listening, machines: Machines, opened: Opened
) -> None:
    listener = listening()
    pool = opened(listener, MANY, script="slow:slowly")
    first = machines.start(listener.address)
    results = pool.generate(ordered(f"b{number:05}", "w") for number in range(100_000))
    found = [next(results).key]
    second = machines.start(listener.address)
    while len(children(second)) == 0:
        found.append(next(results).key)
    first.send_signal(signal.SIGTERM)
    while first.poll() is None:
        found.append(next(results).key)
    assert first.returncode == 0
    found += [next(results).key for _ in range(50)]
    results.close()  # type: ignore[attr-defined]
    assert len(set(found)) == len(found)
    wait_until(lambda: count(listener) == 1)


def test_a_worker_killed_with_its_machine_loses_nothing(
    listening: Listening, machines: Machines, opened: Opened
) -> None:
    listener = listening()
    processes = [machines.start(listener.address) for _ in range(2)]
    pool = opened(listener, TCP, TCP, LOCAL)
    wait_until(lambda: count(listener) == 2)
    found = dict[str, str]()
    for number, result in enumerate(pool.generate(batches(300))):
        assert not found.keys() & {c.request_id for c in result.completions}
        found |= {c.request_id: c.text for c in result.completions}
        if number == 20:
            for process in processes:
                process.kill()
    assert found == wanted(300)


def test_a_worker_whose_child_dies_is_told_as_one_here_is(
    listening: Listening,
    machines: Machines,
    opened: Opened,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = listening()
    machines.start(listener.address)
    pool = opened(listener, TCP)
    order = f"leave once {tmp_path / 'marker'}"
    assert len(texts(pool, [ordered("a", "w", order, "x")])) == 3
    assert "the worker at m0" in caplog.text
    assert "exit code 7" in caplog.text
    assert "ends: the last words" in caplog.text
    # What ends every worker fails alone, and the machine goes on.
    [result] = pool.generate([ordered("b", "w", "die", "x")])
    assert [c.finish_reason for c in result.completions] == ["stop", "failed", "stop"]


@pytest.mark.parametrize("berth", [TCP, MANY], ids=["one", "many"])
def test_what_kills_the_only_machines_process_fails_alone_if_it_comes_first(
    listening: Listening, machines: Machines, opened: Opened, berth: Berth
) -> None:
    """Its deaths are not held against the machine, nor does another replica get its place."""
    listener = listening()
    machines.start(listener.address)
    [result] = opened(listener, berth).generate([ordered("a", "die", "w", "x")])
    assert [c.finish_reason for c in result.completions] == ["failed", "stop", "stop"]


def test_a_machine_on_which_a_replica_gives_up_is_not_asked_again(
    listening: Listening,
    machines: Machines,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(machine_queue, "HOPELESS_S", 600.0)  # however late the other one joins
    listener = listening()
    machines.start(listener.address, PYTHON_BROKEN="1")
    pool = opened(listener, MANY, script="slow:broken")

    def another_joins() -> None:
        wait_until(lambda: "replaced (1 of 3)" in caplog.text)
        machines.start(listener.address)

    joining = threading.Thread(target=another_joins)
    joining.start()
    found = list(pool.generate(batches(30)))
    joining.join()
    assert len(found) == 30
    assert caplog.text.count("died (exit code 3)") == caplog.text.count("restart ") + 1
    assert "replaced (2 of 3)" not in caplog.text


def test_what_waits_for_a_machine_that_does_not_come_is_for_others(
    listening: Listening,
    machines: Machines,
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("BACKOFF_S", "LONGEST_BACKOFF_S"):
        monkeypatch.setattr(supervised, name, 3.0)
    monkeypatch.setattr(sent_stream, "WITHOUT_S", 0.5)
    listener = listening()
    first = machines.start(listener.address)
    pool = opened(listener, TCP, TCP, script="slow:slowly")
    results = pool.generate(batches(200))
    found = [next(results).key]
    machines.start(listener.address)
    wait_until(lambda: count(listener) == 2)
    [child] = children(first)
    child.kill()
    while "restart 1 of 3" not in caplog.text:
        found.append(next(results).key)
    first.kill()
    found += [result.key for result in results]
    assert len(set(found)) == len(found) == 200


def test_a_request_that_takes_machine_after_machine_down_fails_alone(
    listening: Listening,
    machines: Machines,
    opened: Opened,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inquest, "LOSSES", 1)
    listener = listening()
    machines.start(listener.address)
    pool = opened(listener, MANY, script="slow:felling")
    assert texts(pool, batches(1)) == wanted(1)
    marker, over = tmp_path / "marker", threading.Event()

    def fall() -> None:
        while not over.wait(0.05):
            if marker.exists():
                marker.unlink()
                machines.processes[-1].kill()
                machines.start(listener.address)

    falling = threading.Thread(target=fall)
    falling.start()
    [result] = pool.generate([ordered("b", "w", f"fell {marker}", "x")])
    over.set()
    falling.join()
    assert [c.finish_reason for c in result.completions] == ["stop", "failed", "stop"]
    # One loss to suspect it, and two to be sure.
    assert len(machines.processes) == 4


def test_a_frame_that_is_cut_in_two_is_no_answer(
    listening: Listening, machines: Machines, opened: Opened
) -> None:
    listener = listening()
    line = SlowLine(listener.address)
    machines.start(line.address)
    pool = opened(listener, TCP)
    assert texts(pool, batches(2)) == wanted(2)
    line.cut_up_at = line.passed["up"] + 2000
    assert texts(pool, batches(200)) == wanted(200)
    assert line.cut_up_at is None
    line.close()


@pytest.mark.parametrize("ways", [("up",), ("down",), ("up", "down")])
def test_a_machine_behind_a_broken_line_is_lost_and_joins_again(
    listening: Listening,
    machines: Machines,
    opened: Opened,
    caplog: pytest.LogCaptureFixture,
    ways: tuple[str, ...],
) -> None:
    listener = listening(pulse=SHORT)
    line = SlowLine(listener.address)
    worker = machines.start(line.address)
    pool = opened(listener, TCP, LOCAL)
    wait_until(lambda: count(listener) == 1)
    found = dict[str, str]()
    for number, result in enumerate(pool.generate(batches(400))):
        assert not found.keys() & {c.request_id for c in result.completions}
        found |= {c.request_id: c.text for c in result.completions}
        if number == 10:
            line.stop(*ways)
    assert found == wanted(400)
    wait_until(lambda: count(listener) == 0)
    assert "is gone" in caplog.text
    # Its child does not live on for a head that is lost.
    wait_until(lambda: not children(worker))
    line.heal()
    wait_until(lambda: count(listener) == 1)
    # What was held back by the line belongs to nobody, and is given to nobody.
    assert texts(pool, batches(100)) == wanted(100)
    line.close()


def test_workers_stay_while_the_head_goes_and_comes_back(
    listening: Listening, machines: Machines, opened: Opened
) -> None:
    first = listening()
    worker = machines.start(first.address)
    pool = opened(first, TCP)
    assert texts(pool, batches(3)) == wanted(3)
    first.close()
    wait_until(lambda: not children(worker))
    second = listening(first.address)
    assert texts(opened(second, TCP), batches(3)) == wanted(3)
    assert worker.poll() is None


def test_the_only_machine_serves_two_models_in_turn(
    listening: Listening, machines: Machines, opened: Opened
) -> None:
    listener = listening()
    machines.start(listener.address)
    policy = opened(listener, MANY, group="policy")
    critic = opened(listener, MANY, group="critic")
    for pool in (policy, critic, policy):
        assert texts(pool, batches(5)) == wanted(5)


def test_a_pool_grows_and_shrinks_while_it_is_asked(listening: Listening, opened: Opened) -> None:
    pool = opened(listening(), LOCAL)
    results = pool.generate(ordered(f"b{n:04}", "w") for n in range(100_000))
    found = [next(results).key]
    [first] = pool.pids
    pool._pool.resize([LOCAL] * 3)
    grown = {pid for pid in pool.pids if pid is not None} - {first}
    assert len(grown) == 2
    found += [next(results).key for _ in range(200)]
    pool._pool.resize([LOCAL])
    found += [next(results).key for _ in range(500)]
    assert len(set(found)) == len(found)
    assert pool.pids == [first]
    wait_until(lambda: all(map(ended, grown)))
    results.close()  # type: ignore[attr-defined]


def told(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return how a worker ended, and what it said."""
    _, said = process.communicate(timeout=ENDS_S)
    return process.returncode, said


def test_a_wrong_token_is_refused_on_both_sides(
    listening: Listening, machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    listener = listening()
    code, said = told(
        machines.start(listener.address, LPFLOOP_JOIN_TOKEN="another token, long enough")
    )
    assert (code, "the token is another one than the head's" in said) == (2, True)
    # The head refuses before it says so itself.
    wait_until(lambda: "cannot join as a worker: the token is another" in caplog.text)
    assert count(listener) == 0
    code, said = told(machines.start(listener.address, LPFLOOP_JOIN_TOKEN="short"))
    assert (code, "16 characters at least" in said) == (2, True)


def test_another_version_is_refused_on_both_sides(
    listening: Listening,
    machines: Machines,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(join_protocol, "PROTOCOL", 99)
    code, said = told(machines.start(listening().address))
    assert code == 2
    wait_until(lambda: "cannot join as a worker" in caplog.text)
    for text in (said, caplog.text):
        assert "(protocol 99), the worker lpfloop" in text
        assert "install the same version in both places" in text


INTRUDER = """
from pathlib import Path
Path("{marker}").touch()
def score(prompt, answer):
    return 0.0
"""


def test_a_worker_runs_nothing_that_its_head_did_not_send(
    listening: Listening,
    machines: Machines,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener = listening()
    line = SlowLine(listener.address)
    worker = machines.start(line.address)
    wait_until(lambda: count(listener) == 1)
    before = listener.joined.machines
    marker = tmp_path / "marker"
    (tmp_path / "intruder.py").write_text(INTRUDER.format(marker=marker))
    opening = {
        "op": "open",
        "role": "scorer",
        "kind": "function",
        "model": f"{tmp_path / 'intruder.py'}:score",
        "config": RewardConfig(model="intruder.py:score").model_dump(mode="json"),
        "identity": "any",
    }
    forged = (control("begin", 9, gpus=0), Parcel(RELAY, 9, wire.body(opening)))
    line.tell_worker(b"".join(parcel.encoded() for parcel in forged))
    wait_until(lambda: "is gone" in caplog.text or marker.exists())
    assert not marker.exists()
    # It joins again, by another connection, and serves on.
    wait_until(lambda: count(listener) == 1 and listener.joined.machines != before)
    line.close()
    worker.send_signal(signal.SIGTERM)
    code, said = told(worker)
    assert (code, "loads" in said) == (0, False)
    assert "lost (a message without its seal: something between both ends" in said


def test_few_strangers_are_listened_to_at_a_time(
    listening: Listening, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in (join_listener, join_protocol):  # nobody's time is over before the last one comes
        monkeypatch.setattr(module, "HELLO_S", 600.0)
    listener = listening()
    host, _, port = listener.address.rpartition(":")
    mute = [socket.create_connection((host, int(port))) for _ in range(STRANGERS)]
    wait_until(lambda: listener._strangers == STRANGERS)
    with socket.create_connection((host, int(port))) as one_too_many:
        one_too_many.settimeout(30)
        assert one_too_many.recv(1) == b""
    for stranger in mute:
        stranger.close()
    assert f"{STRANGERS} others are being greeted" in caplog.text


def test_strangers_are_let_go_and_disturb_nobody(
    listening: Listening, machines: Machines, opened: Opened, caplog: pytest.LogCaptureFixture
) -> None:
    listener = listening()
    host, _, port = listener.address.rpartition(":")
    garbage = (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x01\x00\x00\x00\x00\xff\xff\xff\xff",
        b"\x01\x00\x00\x00\x00\x00\x00\x00\x04nope",
        b"\x01\x00\x00\x00\x00\x00\x00\x00\x02[]",
        b'\x01\x00\x00\x00\x00\x00\x00\x00\x0d{"op":"beat"}',
        bytes(range(256)) * 40,
    )
    for bytes_ in garbage:
        with socket.create_connection((host, int(port))) as stranger:
            stranger.settimeout(30)
            stranger.sendall(bytes_)
            while stranger.recv(1000):
                pass
    assert "bytes that are no message" in caplog.text
    assert "a message of 4,294,967,295 bytes" in caplog.text
    machines.start(listener.address)
    assert texts(opened(listener, TCP), batches(2)) == wanted(2)


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate of 127.0.0.1 that vouches for itself."""
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-out", str(paths[0]), "-keyout", str(paths[1])),
        ],
        check=True,
        capture_output=True,
    )
    return paths


def test_tls_is_spoken_with_who_trusts_the_certificate_alone(
    listening: Listening,
    machines: Machines,
    opened: Opened,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own, key = certificate(tmp_path, "own")
    other, _ = certificate(tmp_path, "other")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(own, key)
    listener = listening(tls=context)
    code, said = told(machines.start(listener.address, "--tls-ca", str(other)))
    assert (code, "certificate cannot be trusted" in said) == (2, True)
    machines.start(listener.address, "--tls-ca", str(own))
    assert texts(opened(listener, TCP), batches(30)) == wanted(30)
    assert listener.joined.encrypted
    plain = machines.start(listener.address, "--idle-s", "1")
    code, said = told(plain)
    assert (code, "does it listen with TLS?" in said) == (0, True)


def test_a_worker_ends_once_it_idles_or_has_served(
    listening: Listening, machines: Machines, opened: Opened
) -> None:
    listener = listening()
    code, said = told(machines.start(listener.address, "--idle-s", "1"))
    assert (code, "joined" in said) == (0, True)
    once = machines.start(listener.address, "--once")
    pool = opened(listener, TCP)
    assert texts(pool, batches(2)) == wanted(2)
    pool.close()
    assert told(once)[0] == 0


def test_a_worker_of_one_run_ends_with_it_and_waits_while_its_head_is_away(
    listening: Listening, machines: Machines
) -> None:
    listener = listening()
    address = listener.address
    one, any_ = machines.start(address, "--one-run"), machines.start(address)
    wait_until(lambda: count(listener) == 2)
    listener.close()
    again = listening(address)
    wait_until(lambda: count(again) == 2)
    again.close(over=True)
    code, said = told(one)
    assert (code, said.endswith("the run is over\n")) == (0, True)
    another = listening(address)
    wait_until(lambda: count(another) == 1)
    assert any_.poll() is None


def test_a_worker_of_one_run_that_missed_its_end_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_agent, "ABANDONED_S", 1.0)
    said: list[str] = []
    with socket.socket() as held:  # nobody listens there, nor can anybody else
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        offer = Offer(
            host="127.0.0.1", port=port, token=TOKEN, name="m", logs=tmp_path, one_run=True
        )
        WorkerAgent(offer, said.append).serve()
    assert said[-1] == "no run was there for 1 s"


def test_what_no_machine_can_load_is_told(
    listening: Listening, machines: Machines, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_queue, "HOPELESS_S", 1.0)
    listener = listening()
    machines.start(listener.address)
    pool = opened(listener, TCP, script="none.such:script")
    with pytest.raises(EngineError, match="cannot be loaded"):
        texts(pool, batches(1))


def test_a_model_waits_for_a_worker_as_long_as_it_may(listening: Listening, opened: Opened) -> None:
    listener = listening(patience_s=2.0)
    pool = opened(listener, TCP)
    with pytest.raises(EngineError, match=r"no worker was there for 2 s \(workers.patience_s\)"):
        texts(pool, batches(1))


@pytest.mark.model
def test_a_model_elsewhere_says_what_it_says_here(
    listening: Listening, machines: Machines, tiny_policy: Path, tmp_path: Path
) -> None:
    listener = listening()
    machines.start(listener.address)
    asked = [
        Batch(
            key=str(number),
            requests=tuple(
                Request(
                    request_id=f"{number}/{i}",
                    messages=(Message(role="user", content=f"Tom has {number} apples."),),
                    seed=derive_seed(0, str(number), i),
                )
                for i in range(8)
            ),
            sampling=Sampling(temperature=1.0, top_p=1.0, max_tokens=16),
        )
        for number in range(4)
    ]
    given = EngineConfig(kind="vllm", cpu_threads=1)
    found: list[tuple[object, object]] = []
    for place in ("local", "tcp"):
        config = given.model_copy(update={"place": place})
        log = tmp_path / f"{place}.log"
        engine = open_engine(str(tiny_policy), config, log=log, listener=listener)
        drawn = {result.key: result for result in engine.generate(asked)}
        conversation = (*asked[0].requests[0].messages, Message(role="assistant", content="Five."))
        found.append((drawn, engine.logprobs([conversation])))
        engine.close()
    assert found[0] == found[1]
