"""A failpoint does nothing until it is armed, then exactly what was asked for."""

import ast
import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from examples import PAIR
from lpfloop.stores import durable, failpoints, sealing
from lpfloop.stores.failpoints import (
    ACTIONS,
    FAILPOINTS,
    VARIABLE,
    FailpointError,
    armed,
    observed,
    reach,
)
from lpfloop.stores.schemas import to_table

PLACE = "part.rename.before"
CODE = "from lpfloop.stores.failpoints import reach\nfor n in range(3): reach({!r}); print(n)"


def child(setting: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-uc", CODE.format(PLACE)],
        env={**os.environ, VARIABLE: setting},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_nothing_happens_unless_armed():
    for name in FAILPOINTS:
        reach(name)


@pytest.mark.parametrize(
    ("action", "code"),
    [("enospc", errno.ENOSPC), ("edquot", errno.EDQUOT), ("eio", errno.EIO)],
)
def test_an_armed_error_is_raised_each_time_and_no_more_afterwards(action, code):
    with armed({PLACE: action}):
        for _ in range(2):
            with pytest.raises(OSError, match=PLACE) as caught:
                reach(PLACE)
            assert caught.value.errno == code
        reach("part.rename.after")
    reach(PLACE)


def test_the_nth_time_alone_can_be_armed():
    calls = []
    with armed({f"{PLACE}#2": calls.append, f"{PLACE}#3": calls.append}):
        for _ in range(4):
            reach(PLACE)
    assert calls == [PLACE, PLACE]


def test_what_is_reached_is_observed_in_order():
    with observed() as outer:
        reach("stage.begin")
        with observed() as inner:
            reach("stage.end")
    reach("stage.unit")
    assert (outer, inner) == (["stage.begin", "stage.end"], ["stage.end"])


def test_a_name_that_is_not_declared_is_found_by_any_test_that_looks():
    with observed(), pytest.raises(FailpointError, match="no\\.such"):
        reach("no.such")


@pytest.mark.parametrize(
    ("place", "action"),
    [("no.such", "kill"), (PLACE, "explode"), (f"{PLACE}#0", "kill"), (f"{PLACE}#x", "kill")],
)
def test_what_can_not_be_armed_is_refused(place, action):
    with pytest.raises(FailpointError), armed({place: action}):
        pass


@pytest.mark.parametrize(("nth", "printed"), [("", ""), ("#1", ""), ("#3", "0\n1\n")])
def test_a_child_is_killed_at_the_place_its_environment_names(nth, printed):
    process = child(f"stage.begin:kill,{PLACE}{nth}:kill")
    out, _ = process.communicate()
    assert (process.returncode, out) == (-signal.SIGKILL, printed)


def test_a_child_stops_and_goes_on():
    process = child(f"{PLACE}#2:stop")
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate()
    assert (process.returncode, out) == (0, "0\n1\n2\n")


def test_a_wrong_environment_is_told_at_once():
    process = child("no.such:kill")
    _, err = process.communicate()
    assert process.returncode == 1
    assert "FailpointError" in err


def test_every_failpoint_says_where_it_is_in_one_line():
    assert all(re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", name) for name in FAILPOINTS)
    assert all(text and "\n" not in text and "{" not in text for text in FAILPOINTS.values())
    assert set(ACTIONS) >= {"kill", "stop", "enospc", "eio"}


# every durable operation has one

CHANGES = {
    *(
        "copytree",
        "fsync",
        "hardlink_to",
        "link",
        "mkdir",
        "move",
        "remove",
        "removedirs",
        "rename",
    ),
    *(
        "renames",
        "replace",
        "rmdir",
        "rmtree",
        "symlink_to",
        "touch",
        "truncate",
        "unlink",
        "write",
    ),
    *("write_bytes", "write_text"),
}


def changes(tree: ast.AST, *, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """Give each call that changes the disk, and whether it is the body of an `operation`."""
    for node in ast.iter_child_nodes(tree):
        around = inside
        if isinstance(node, ast.With):
            names = [ast.unparse(item.context_expr).partition("(")[0] for item in node.items]
            around = inside or "operation" in names
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            creates = node.func.attr == "open" and "O_CREAT" in ast.unparse(node)
            if creates or node.func.attr in CHANGES:
                yield ast.unparse(node), inside
        yield from changes(node, inside=around)


def test_every_durable_operation_has_a_failpoint(root):
    found = list(changes(ast.parse((root / "stores" / "durable.py").read_text())))
    assert len(found) >= 8
    assert [call for call, inside in found if not inside] == []


@pytest.mark.parametrize("code", ["os.rename(a, b)", "path.unlink()", "os.open(p, os.O_CREAT)"])
def test_an_operation_without_a_failpoint_would_be_seen(code):
    assert list(changes(ast.parse(code))) == [(code, False)]
    assert list(changes(ast.parse(f"with operation(x): {code}"))) == [(code, True)]


def test_every_declared_failpoint_of_the_store_is_reached(tmp_path):
    run = tmp_path / "run"
    table = to_table(type(PAIR), [PAIR])
    with observed() as reached:
        durable.make_folder(run)
        (part,) = sealing.write_parts([(run, table)])
        pack = sealing.write_pack(other := durable.make_folder(tmp_path / "packs"), table)
        durable.discard(other / f"{pack.sha256}.parquet")
        for purpose in ("file", "pages", "backup", "mended"):
            durable.write_file(run / "file", b"", purpose)
        (run / "draft").write_bytes(b"")
        durable.publish_file(run / "draft", run / "final")
        (run / "model").mkdir()
        (run / "model" / "weights").write_bytes(b"")
        identity = durable.publish_folder(run / "model", run)
        other = durable.make_folder(tmp_path / "other")
        for name in (identity, f"{part.sha256}.parquet"):
            durable.link(run / name, other / name)
            durable.remove(other / name)
        durable.quarantine(run / "file", run / "quarantine")
    declared = {
        f"{purpose}.{kind}.{side}"
        for purpose, (_, kinds) in failpoints._DURABLE.items()
        for kind in kinds
        for side in ("before", "after")
    }
    assert set(reached) == declared
    assert declared < set(FAILPOINTS)
