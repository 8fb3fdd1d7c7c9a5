"""Processes that are forks of one: how they end is told as `subprocess` tells it, and none is lost."""

import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT

from complearn.training.runs.forks import Forks, is_running
from complearn.training.runs.sweep import environment

COMMAND = """import os, signal, sys, time
from complearn.training.runs.forks import serve


def main(words):
    print("began", *sys.argv[1:], flush=True)
    if words[0] == "sleep":
        time.sleep(60)
    if words[0] == "slow":  # to end, as a run that writes a checkpoint
        signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1.5), os._exit(0)))
        print("ready", flush=True)
        time.sleep(60)
    if words[0] == "leave":
        raise SystemExit(7)
    print(*shared, flush=True) if words[0] == "0" and shared else None
    return int(words[0])


shared = []


def before(words):
    if words[0] == "3":
        raise ValueError("said by the fork itself")
    shared.append(words[1]) if len(words) > 1 else None


sys.exit(serve(main, before))
"""


@pytest.fixture
def forks(tmp_path):
    (tmp_path / "command.py").write_text(COMMAND)
    env = environment(1, []) | {"PYTHONPATH": str(ROOT), "COMPLEARN_TYPECHECK": "0"}
    forks = Forks([sys.executable, str(tmp_path / "command.py")], env)
    yield forks
    forks.close()


def gone(pid):
    """Whether a process has ended, or ends within some seconds."""
    until = time.monotonic() + 20
    while is_running(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_running(pid)


def test_codes_and_logs_are_each_forks_own(forks, tmp_path):
    ended = [forks.start([word], tmp_path / f"{word}.txt") for word in ("0", "3", "leave")]
    assert [fork.wait(60) for fork in ended] == [0, 3, 7] == [fork.poll() for fork in ended]
    assert [(tmp_path / f"{word}.txt").read_text() for word in ("0", "3")] == ["began 0\n", "began 3\n"]
    forks.start(["0"], tmp_path / "3.txt").wait(60)
    assert (tmp_path / "3.txt").read_text() == "began 3\nbegan 0\n"  # added to what was there


def test_forks_share_what_was_made_before_them(forks, tmp_path):
    """What cannot be made is left to the fork, which tells why."""
    for words in (["0", "one"], ["3"], ["0", "two"]):
        forks.start(words, tmp_path / f"{words[-1]}.txt").wait(60)
    assert (tmp_path / "one.txt").read_text() == "began 0 one\none\n"
    assert (tmp_path / "two.txt").read_text() == "began 0 two\none two\n"


def test_a_signal_ends_one_fork_and_no_other(forks, tmp_path):
    first, second = (forks.start(["sleep"], tmp_path / "log.txt") for _ in range(2))
    assert len({os.getsid(fork.pid) for fork in (first, second)} | {os.getsid(0)}) == 3
    with pytest.raises(subprocess.TimeoutExpired):
        first.wait(0.2)
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == -signal.SIGTERM and second.poll() is None
    first.send_signal(signal.SIGTERM)  # to nobody
    os.killpg(second.pid, signal.SIGKILL)
    assert second.wait(60) == -signal.SIGKILL


def test_forks_go_on_when_the_process_is_closed(forks, tmp_path):
    fork = forks.start(["sleep"], tmp_path / "log.txt")
    forks.close()
    assert forks.process.returncode == 0
    os.kill(fork.pid, signal.SIGKILL)  # raises if it were not there
    assert gone(fork.pid)


def test_a_lost_process_takes_its_forks_along_and_says_so(forks, tmp_path, capfd):
    fork = forks.start(["sleep"], tmp_path / "log.txt")
    forks.process.kill()
    assert fork.wait(60) == -signal.SIGTERM and gone(fork.pid)
    assert "the process that starts runs ended with exit code -9; its runs were asked to end" in capfd.readouterr().err
    with pytest.raises(RuntimeError, match="the process that starts runs ended with exit code -9"):
        forks.start(["0"], tmp_path / "log.txt")


def test_a_fork_that_was_asked_to_end_is_waited_for(forks, tmp_path):
    fork = forks.start(["slow"], tmp_path / "log.txt")
    began = time.monotonic()
    while "ready" not in (tmp_path / "log.txt").read_text() and time.monotonic() < began + 60:
        time.sleep(0.05)
    forks.process.kill()
    while fork.poll() is None and not forks.process.stdin.closed:
        time.sleep(0.02)
    assert is_running(fork.pid) and fork.poll() is None  # it is still writing
    forks.close()
    assert not is_running(fork.pid) and fork.poll() == -signal.SIGTERM


def test_a_fork_that_dies_before_its_first_word_is_known(forks, tmp_path, monkeypatch):
    """Its end alone arrives then."""
    read = forks.messages.read
    monkeypatch.setattr(forks.messages, "read", lambda *seconds: [m for m in read(*seconds) if "code" in m])
    assert forks.start(["3"], tmp_path / "log.txt").wait(60) == 3


def test_a_command_that_cannot_be_imported_is_an_error(tmp_path):
    forks = Forks([sys.executable, "-c", "raise SystemExit(5)"])
    with pytest.raises(RuntimeError, match="ended with exit code 5"):
        forks.start(["0"], tmp_path / "log.txt")
    forks.close()


def test_an_interrupted_start_leaves_nothing_behind(forks, tmp_path, monkeypatch):
    read = forks.messages.read

    def interrupted(seconds=0.0):
        monkeypatch.setattr(forks.messages, "read", read)
        until = time.monotonic() + 60
        # the fork is there, its number not read yet
        while not (tmp_path / "log.txt").read_text() and time.monotonic() < until:
            time.sleep(0.05)
        raise KeyboardInterrupt

    monkeypatch.setattr(forks.messages, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        forks.start(["sleep"], tmp_path / "log.txt")
    assert len(forks.started) == 1 and gone(forks.started[0])


def test_a_log_that_cannot_be_written_is_said_before_anything_starts(forks, tmp_path):
    with pytest.raises(OSError, match="log.txt"):
        forks.start(["0"], tmp_path / "nowhere" / "log.txt")
    assert not forks.started
