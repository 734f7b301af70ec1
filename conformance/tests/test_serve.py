"""The second transport: an implementation in another process is what it is in this one, and does this one no harm."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from gradspec import remote
from gradspec.adapter import Gone, Unsupported
from gradspec.behaviour import Late, behaviour
from gradspec.capabilities import Capabilities
from gradspec.engine import Settings, run_item
from gradspec.messages import line_of, pack, read_answer, read_greeting
from gradspec.remote import Remote, open_adapter
from gradspec.report import first_violation
from gradspec.session import NativeError, Session
from gradspec.suite.support import suite_tests
from gradspec.wire import MAX_ITEMS, MAX_TEXT, MalformedMessage

PLAIN = str(Path(__file__).with_name("plain_engine.py"))


@pytest.fixture
def plain() -> Iterator[Remote]:
    with closing(Remote(PLAIN, sys.executable)) as adapter:
        adapter.start()
        yield adapter


def written(folder: Path, body: str) -> str:
    """A file with an adapter: its path."""
    file = folder / "mine.py"
    file.write_text(f"import os, sys, time\nfrom gradspec.adapters.refgrad import Refgrad\n{body}", encoding="utf-8")
    return str(file)


def on_both(argument: str, script: Callable[[Session], Any]) -> list[Any]:
    """What a script finds in this process and served: its result, the error that ended it, the trace."""
    found = []
    for python in (None, sys.executable):
        adapter = open_adapter(argument, python)
        session, result = Session(adapter), None
        session.start()
        try:
            result = script(session)
        except NativeError as error:
            result = error.act, error.step, error.kinds, error.type, error.text
        found.append((result, [step.to_json() for step in session.trace]))
        if isinstance(adapter, Remote):
            adapter.close()
    return found


def lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"


def ends(pid: int, seconds: float = 20.0) -> bool:
    """Whether a process ends within some seconds."""
    until = time.monotonic() + seconds
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not lives(pid)


# --- the conversation ---------------------------------------------------------------------------------------------


@behaviour
def doubled(c: Any, g: Any) -> Any:
    """A hook that writes down what it is given, removes itself and returns the double."""
    c.record("seen", g, (1, None))
    c.remove(Late("hook1"))
    return c.apply("mul", g, 2.0)


@behaviour
def angry(c: Any, g: Any) -> None:
    """A hook that raises."""
    c.record("before")
    c.raise_("on purpose")
    c.record("after", g)


def acts(impl: Session) -> Any:
    """Acts of every kind, with every kind of argument and outcome."""
    x = impl.tensor([1.0, float("inf")], shape=(2,), requires_grad=True)
    hook = impl.register_hook(x, doubled)
    y = impl.apply("mul", x, 2.0)
    parts = impl.apply("split", y, split_size=1, dim=0)
    with impl.no_grad(), impl.warnings() as caught:
        impl.grad(y)
    impl.backward(parts[0], impl.tensor([1.0], shape=(1,)), retain_graph=True)
    events, gradient = impl.events(), impl.value(impl.grad(x))
    with pytest.raises(Unsupported) as missing:
        impl.state_dict(x)
    unused = impl.gradients((parts[1],), [x, impl.tensor(0.0, requires_grad=True)], allow_unused=True)
    errors = [error_of(impl, MappingProxyType({"a": x})), error_of(impl, {"a": x}), error_of(impl, ())]
    impl.release(hook)
    return caught, events, gradient, str(missing.value), [u is None for u in unused], errors, impl.is_leaf(x)


def error_of(impl: Session, inputs: Any) -> Any:
    """How a pass into such inputs ends."""
    try:
        impl.backward(impl.apply("sum", impl.tensor(1.0, requires_grad=True), dim=None, keepdim=False), inputs=inputs)
    except NativeError as error:
        return error.kinds, error.type, error.text
    return None


def test_every_message_has_the_form_of_the_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, bytes]] = []
    send, receive = remote._Child.send, remote._Child.receive

    def heard(child: Any, deadline: float | None) -> bytes:
        said.append(("answer" if said else "greeting", receive(child, deadline)))
        return said[-1][1]

    monkeypatch.setattr(remote._Child, "receive", heard)
    monkeypatch.setattr(remote._Child, "send", lambda c, line, at: (said.append(("request", line)), send(c, line, at)))
    with closing(Remote("refgrad", sys.executable)) as adapter:
        session = Session(adapter)
        session.start()
        acts(session)
    for form, line in said:
        assert first_violation("message-1", json.loads(line), form) is None, line
        assert first_violation("message-1", json.loads(line)) is None, line
    text = b"".join(line for _, line in said)
    for tag in ("list", "mapping", "dict", "behaviour", "late", "frees", "names", "warnings", "unsupported", "none"):
        assert f'"{tag}"'.encode() in text


@pytest.mark.parametrize(
    "message",
    [
        {"act": "value", "arguments": [{"refs": "_1"}]},
        {"act": "value", "result": "y1"},
        {"act": "value", "frees": []},
        {"returned": 1, "raised": {"kinds": [], "type": "E", "text": ""}},
        {"raised": {"kinds": ["Bad"], "type": "E", "text": ""}},
        {"message": 1, "gradspec": "1", "python": "3"},
        {},
    ],
)
def test_the_schema_refuses_other_forms(message: Any) -> None:
    assert first_violation("message-1", message) is not None


@pytest.mark.parametrize(
    "line",
    [b"", b"junk", b"[]", b"{}", b'{"returned": 1, "unsupported": ""}', b'{"raised": {}, "else": 1}', b"[" * 9999],
)
def test_an_answer_of_another_form_is_refused(line: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_answer(line)
    with pytest.raises(MalformedMessage):
        read_greeting(line)


@pytest.mark.parametrize("item", [object(), "x" * (MAX_TEXT + 1), (0,) * (MAX_ITEMS + 1), [[lambda: None]], {"a": {1}}])
def test_what_no_message_holds_is_not_sent_in_another_form(item: Any) -> None:
    with pytest.raises(Unsupported, match="in another process"):
        pack(item)


def test_the_command_speaks_to_anybody() -> None:
    requests = [
        {"act": "tensor", "arguments": [2.5], "result": "_1"},
        {"act": "value", "arguments": [{"ref": "_1"}]},
        {"act": "value", "arguments": [{"ref": "_1"}], "frees": ["_1"]},
        {"act": "__init__"},
        {"act": "start", "arguments": []},
    ]
    given = b"".join(map(line_of, requests)) + b"junk\n"
    done = subprocess.run(
        [sys.executable, "-m", "gradspec", "serve", PLAIN], input=given, capture_output=True, check=False
    )
    greeting, *answers = map(json.loads, done.stdout.splitlines())
    assert (greeting["message"], greeting["declared"]["name"]) == (1, "plain")
    assert answers[0] == {"returned": {"ref": "_1"}}
    assert answers[1] == {"returned": {"value": {"shape": [], "dtype": "float64", "data": 2.5}}}
    assert answers[2] == {"raised": {"kinds": [], "type": "KeyError", "text": "'_1'"}}
    assert answers[3] == {"unsupported": "the act '__init__'"}
    assert answers[4] == {"returned": None}
    assert answers[5]["raised"]["type"] == "JSONDecodeError"
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_command_says_why_it_cannot_begin() -> None:
    done = subprocess.run([sys.executable, "-m", "gradspec", "serve", "nosuch"], capture_output=True, check=False)
    greeting = json.loads(done.stdout)
    assert first_violation("message-1", greeting, "greeting") is None
    assert "no adapter 'nosuch'" in greeting["refused"]["text"]
    assert done.returncode == 2
    assert done.stderr.startswith(b"gradspec: there is no adapter 'nosuch'")
    assert done.stderr.count(b"\n") == 1


# --- the same as in this process ----------------------------------------------------------------------------------


def test_acts_of_every_kind_are_the_same_served() -> None:
    here, there = on_both("refgrad", acts)
    assert here == there
    caught, events, _, _, unused, errors, _ = here[0]
    assert caught.kinds == {"non_leaf_grad"}
    assert events[0][0] == "seen"
    assert unused == [False, True]
    assert [error is None for error in errors] == [False, True, False]


def nested(impl: Session) -> Any:
    """A hook that registers another one on a tensor that it captured."""
    x = impl.tensor([2.0], shape=(1,), requires_grad=True)
    y = impl.apply("mul", x, x)

    @behaviour
    def outer(c: Any, g: Any) -> None:
        c.record("outer", g, y)
        c.register_hook(x, doubled_once)

    impl.register_hook(y, outer)
    impl.backward(y)
    return impl.events(), impl.value(impl.grad(x))


@behaviour
def doubled_once(c: Any, g: Any) -> Any:
    """The inner hook of `nested`."""
    c.record("inner", g)
    return c.apply("mul", g, 2.0)


def raising(impl: Session) -> Any:
    """A hook that raises ends the pass."""
    x = impl.tensor(2.0, requires_grad=True)
    impl.register_hook(x, angry)
    with pytest.raises(NativeError) as raised:
        impl.backward(impl.apply("mul", x, x))
    assert raised.value.kinds == {"behaviour_error"}
    return impl.events(), raised.value.type, raised.value.text


def late(impl: Session) -> Any:
    """A name that nothing living has when the hook runs, and one that something has."""
    x = impl.tensor(2.0, requires_grad=True)
    hook = impl.register_hook(x, doubled)
    impl.backward(impl.apply("mul", x, x))
    first = impl.events()
    impl.register_hook(x, doubled)
    impl.release(hook)
    impl.backward(impl.apply("mul", x, x))
    return first


@behaviour
def looking(c: Any, g: Any) -> None:
    """A hook that looks a name up."""
    c.record("seen", g, Late("x2"))


def stale(impl: Session) -> Any:
    """A name of the example before, of something that lives on, is no name any more."""
    kept = [impl.tensor(1.0) for _ in range(2)]
    impl.start()
    x = impl.tensor(2.0, requires_grad=True)
    impl.register_hook(x, looking)
    impl.backward(impl.apply("mul", x, x))
    return len(kept)


@pytest.mark.parametrize(("script", "ended"), [(nested, False), (raising, False), (late, True), (stale, True)])
def test_behaviours_do_the_same_served(script: Callable[[Session], Any], ended: bool) -> None:
    here, there = on_both("refgrad", script)
    assert here == there
    assert ("raised" in here[1][-1]) == ended
    assert not ended or here[0][3] == "KeyError"


def test_what_is_dropped_here_is_dropped_there() -> None:
    def script(impl: Session) -> Any:
        x = impl.tensor([1.0, 2.0], shape=(2,), requires_grad=True)
        y = impl.apply("exp", x)
        first, second = impl.watch(y), impl.watch(x)
        before = impl.alive(first)
        ring = [y]
        ring.append(ring)  # type: ignore[arg-type] # only the collector of garbage finds it
        del y, ring
        return before, impl.alive(first), impl.alive(second)

    here, there = on_both("refgrad", script)
    assert here == there
    assert here[0] == (True, False, True)


def test_nonsense_is_called_the_same_served() -> None:
    here, there = on_both(PLAIN, lambda impl: impl.shape(impl.tensor(1.0)))
    assert here == there
    assert here[0][2:] == ({"nonsense"}, "nonsense", "shape returned a list, not a tuple of Python ints")


@pytest.mark.parametrize(("act", "name"), [("interrupt", "KeyboardInterrupt"), ("quit", "SystemExit")])
def test_what_would_end_a_process_is_data_served(act: str, name: str) -> None:
    here, there = on_both(PLAIN, lambda impl: impl.apply(act, impl.tensor(1.0)))
    assert here == there
    assert here[0][3] == name


def rows(argument: str, clauses: Sequence[str], examples: int) -> list[list[dict[str, Any]]]:
    """The rows of clauses in this process and served, without their seconds."""
    found = []
    for python in (None, sys.executable):
        adapter = open_adapter(argument, python)
        session, offered = Session(adapter), Capabilities.of(adapter)
        items = [(test, c) for test in suite_tests() for c in test.clauses if c.startswith(tuple(clauses))]
        given = [run_item(test, c, session, offered, Settings(0, examples)) for test, c in items]
        found.append([{key: value for key, value in row.items() if key != "seconds"} for row in given])
        if isinstance(adapter, Remote):
            adapter.close()
    return found


@pytest.mark.parametrize(
    ("argument", "clauses", "failing"),
    [
        ("refgrad", ("RETAIN", "GRADSLOT-0"), set()),
        ("gradspec.faults:H04", ("RETAIN",), {"RETAIN-03"}),
        ("torch", ("RETAIN-0", "BACKWARD-22"), set()),
    ],
)
def test_the_rows_are_the_same_served(argument: str, clauses: Sequence[str], failing: set[str]) -> None:
    here, there = rows(argument, clauses, 8)
    assert json.dumps(here) == json.dumps(there)
    assert len(here) > 8
    assert {row["clause"] for row in here if row["failure"]} == failing
    assert all(row["failure"]["trace"] for row in here if row["failure"])


def test_the_record_of_check_is_the_same_and_says_who_served(tmp_path: Path) -> None:
    records = []
    for extra in ((), ("--python", sys.executable)):
        words = ["check", "gradspec.faults:H04", "--clause", "RETAIN-03", "--jobs", "1", "--profile", "smoke"]
        words = [sys.executable, "-m", "gradspec", *words, "--json", "r.json", *extra]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        records.append(json.loads((tmp_path / "r.json").read_text(encoding="utf-8")))
    here, there = ({k: v for k, v in record.items() if k not in ("time", "environment")} for record in records)
    assert here == there
    assert "served" not in records[0]["environment"]
    assert records[1]["environment"]["served"] == records[1]["environment"]["python"]


def test_an_example_that_hangs_costs_its_time_and_no_worker(tmp_path: Path) -> None:
    body = "class Mine(Refgrad):\n    name = 'mine'\n    def backward(self, root, gradient=None, **keywords):\n"
    body += "        time.sleep(600 if gradient is not None and 'retain_graph' in keywords else 0)\n"
    written(tmp_path, body + "        super().backward(root, gradient, **keywords)\n")
    words = ["check", "mine.py", "--clause", "RETAIN-01", "--jobs", "1", "--profile", "smoke", "--timeout", "1"]
    words = [sys.executable, "-m", "gradspec", *words, "--python", sys.executable, "--json", "r.json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    (clause,) = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["clauses"]
    assert (done.returncode, clause["verdict"]) == (1, "timed_out")
    assert clause["failure"]["found"] == "no end after 1 seconds"
    assert clause["failure"]["case"]["program"]
    assert clause["failure"]["trace"]


# --- no harm ------------------------------------------------------------------------------------------------------


def test_what_it_prints_gets_between_no_messages(plain: Remote) -> None:
    x = plain.tensor(2.0)
    for _ in range(3):
        plain.apply("print", x)
    assert plain.value(plain.apply("mul", x, x)).data == 4.0


def test_what_it_prints_while_it_is_loaded_neither(tmp_path: Path) -> None:
    body = "print('loaded', flush=True)\nos.write(1, b'x' * 10**6)\nsys.stdin.read()\nclass Mine(Refgrad): pass\n"
    with closing(Remote(written(tmp_path, body), sys.executable)) as adapter:
        adapter.start()
        assert adapter.value(adapter.tensor(1.0)).data == 1.0


def test_what_it_changed_is_put_back_for_the_next_example(plain: Remote) -> None:
    before = plain.dtype(plain.tensor(1.0))
    plain.apply("mess", plain.tensor(1.0))
    assert plain.dtype(plain.tensor(1.0)) == "1.0 500 / True"
    plain.start()
    assert plain.dtype(plain.tensor(1.0)) == before


@pytest.mark.parametrize(
    ("act", "verdict", "reason"),
    [
        ("crash", "crashed", "the process ended (SIGSEGV)"),
        ("exit", "crashed", "the process ended (exit status 7)"),
        ("fork", "crashed", "the process ended (exit status 5)"),
        ("close", "crashed", "the process closed the channel of its answers"),
        ("junk", "crashed", "what came back is no message of the protocol, the process was ended"),
        ("wrong", "crashed", "what came back is no message of the protocol, the process was ended"),
        ("long", "crashed", "what came back is no message of the protocol, the process was ended"),
        ("hang", "timed_out", "no end after 0.75 seconds"),
        ("hold", "timed_out", "no end after 0.75 seconds"),
    ],
)
def test_a_process_that_is_lost_costs_its_example(
    act: str, verdict: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "LARGEST", 10_000)
    with closing(Remote(PLAIN, sys.executable, timeout=0.75)) as adapter:
        session = Session(adapter)
        session.start()
        x, pid = session.tensor(1.0), adapter.pid
        for _ in range(2):  # what is gone stays gone until the next example
            with pytest.raises(Gone) as gone:
                session.apply(act, x)
            assert (gone.value.verdict, gone.value.reason) == (verdict, reason)
        assert ends(pid)
        session.start()
        assert session.value(session.apply("add", session.tensor(1.0), session.tensor(2.0))).data == 3.0
        assert adapter.pid not in (0, pid)


def test_a_slow_example_has_its_time_from_its_start() -> None:
    with closing(Remote(PLAIN, sys.executable, timeout=1.5)) as adapter:
        for _ in range(3):
            adapter.start()
            time.sleep(0.75)
            adapter.apply("nothing", adapter.tensor(1.0))
        with pytest.raises(Gone, match=r"no end after 1\.5 seconds"):
            adapter.apply("hang", adapter.tensor(1.0))


def test_an_interrupt_does_not_leave_an_answer_for_the_next_act(plain: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(remote._Child, "receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            plain.tensor(5.0)
    plain.start()
    assert plain.value(plain.tensor(1.0)).data == 1.0


def test_one_that_cannot_be_started_again_is_gone(tmp_path: Path) -> None:
    body = f"if os.path.exists({str(tmp_path / 'once')!r}): 1 / 0\nopen({str(tmp_path / 'once')!r}, 'w').close()\n"
    with closing(Remote(written(tmp_path, body + "class Mine(Refgrad): pass\n"), sys.executable)) as adapter:
        adapter.start()
        os.kill(adapter.pid, signal.SIGKILL)
        with pytest.raises(Gone, match="SIGKILL"):
            adapter.tensor(1.0)
        with pytest.raises(Gone, match=r"cannot be started again: .*ZeroDivisionError: division by zero, at mine.py:3"):
            adapter.start()


# --- no process is left -------------------------------------------------------------------------------------------

OWNER = """
import sys, time
from gradspec.remote import Remote
adapter = Remote({plain!r}, sys.executable)
adapter.start()
x = adapter.tensor(1.0)
print(adapter.pid, flush=True)
{act}
"""


@pytest.mark.parametrize("act", ["adapter.apply('hold', x)", "time.sleep(600)"], ids=["busy", "idle"])
def test_no_process_survives_the_kill_of_its_owner(act: str) -> None:
    code = OWNER.format(plain=PLAIN, act=act)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        time.sleep(0.3)  # so that it is busy
        assert lives(pid)
        owner.kill()
        owner.wait()
        assert ends(pid)


def test_no_process_survives_the_end_of_its_owner() -> None:
    code = OWNER.format(plain=PLAIN, act="")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert ends(int(done.stdout))


def test_an_adapter_that_nobody_holds_ends_its_process() -> None:
    adapter = Remote(PLAIN, sys.executable)
    pid = adapter.pid
    del adapter
    gc.collect()
    assert ends(pid)
