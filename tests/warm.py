"""Notebooks in forks of one warm process: torch, pandas, plotly and the package are imported once.

The warm process imports, and makes one table: one thread, no torch at work, no browser, so that a fork is safe. Each
fork has its own session and a time limit; when it ends, whatever it started ends with it. `Warm` is the tests' side,
`serve` the process that they talk to, in lines of JSON.
"""

import ctypes
import gc
import importlib
import inspect
import json
import multiprocessing.util
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 300  # seconds for one notebook


@dataclass(frozen=True)
class Result:
    "How a notebook ended."

    good: bool
    seconds: float  # on the clock
    cpu: float  # seconds of processor time, of the notebook and of what it started
    message: str  # what it wrote to the terminal, and the error if there was one


class Warm:
    "The warm process, started when it is first needed."

    def __init__(self, folder):
        self.folder = Path(folder)  # temporary folders that notebooks make lie under `folder`
        self.process = None
        self.spare = None

    def start(self):
        "Start the process, unless it runs."
        if self.process is not None and self.process.poll() is None:
            return
        words = [sys.executable, str(Path(__file__))]
        plain = {
            "OMP_NUM_THREADS": "1",
            "TQDM_DISABLE": "1",
            "PYTHONWARNINGS": "ignore",
            "TOKENIZERS_PARALLELISM": "false",
            "COMPLEARN_TYPECHECK": "0",  # as users run them; the tests check shapes
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        requests, there = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with there:
            self.process = subprocess.Popen(
                [*words, str(there.fileno())],
                cwd=ROOT,
                env=os.environ | plain,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[there.fileno()],
            )
        self.spare = Spare(requests)

    @contextmanager
    def starts(self):
        """Inside, `python -m complearn.launch` is started as a fork: for a test of what a training in another process
        does, and not of how Python starts."""
        self.start()
        adopt_orphans(True)
        earlier = subprocess.Popen._execute_child
        try:
            self.spare.replace_popen()
            yield
        finally:
            subprocess.Popen._execute_child = earlier
            adopt_orphans(False)

    def run(self, path, parameters=None, report=None, limit=LIMIT, env=None):
        """Run a notebook as `nbdev_test` does, or with `parameters` as papermill does; the executed notebook goes to
        `report`."""
        self.start()
        task = {
            "path": str(path),
            "parameters": parameters,
            "report": str(report) if report else None,
            "limit": limit,
            "env": env or {},
        }
        self.process.stdin.write(json.dumps(task | {"folder": str(self.folder)}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the warm process ended with exit code {self.process.wait()}")
        return Result(**json.loads(answer))

    def close(self):
        if self.process is not None:
            self.spare.requests.close()
            self.process.stdin.close()
            self.process.wait(30)


# --- trainings that a notebook or a test starts: forks, too

LAUNCH = [sys.executable, "-m", "complearn.launch"]
PR_SET_CHILD_SUBREAPER = 36  # of prctl(2)


def adopt_orphans(adopt):
    "Whether orphans below this process become its children."
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


class Spare:
    """A process that has computed nothing yet, and runs `python -m complearn.launch` in its forks, which import nothing
    again. What it starts becomes a child of the process that asks for it."""

    def __init__(self, requests):
        self.requests = requests  # a socket to the spare

    @classmethod
    def fork(cls):
        "A spare of this process, which has computed nothing yet either."
        requests, there = socket.socketpair(type=socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            requests.close()
            cls.serve(there)
        there.close()
        return cls(requests)

    def replace_popen(self):
        "From here on `subprocess.Popen` starts the command of a training in a fork."
        execute_child = subprocess.Popen._execute_child
        signature = inspect.signature(execute_child)

        def start(popen, args, *rest):
            words = [args] if isinstance(args, str | os.PathLike) else [os.fspath(word) for word in args]
            if words[:3] != LAUNCH:
                return execute_child(popen, args, *rest)
            given = signature.bind(popen, args, *rest).arguments
            ends = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]  # of the child: input, output, errors
            files = [number if end == -1 else end for number, end in enumerate(ends)]
            env = dict(os.environ if given["env"] is None else given["env"])
            cwd = os.fspath(given["cwd"] or os.getcwd())
            task = {"words": words, "env": env, "cwd": cwd, "session": given["start_new_session"]}
            socket.send_fds(self.requests, [json.dumps(task).encode()], files)
            popen.pid = int(self.requests.recv(32))
            popen._child_created = True
            pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            popen._close_pipe_fds(*(given[name] for name in pipes))

        subprocess.Popen._execute_child = start

    @staticmethod
    def serve(requests):
        "In the spare: fork for every request, and answer with the fork's number."
        while True:
            text, files, _, _ = socket.recv_fds(requests, 1 << 20, 3)
            if not text:
                os._exit(0)
            numbers, number = os.pipe()
            middle = os.fork()
            if middle == 0:
                child = os.fork()
                if child == 0:
                    for file in (requests.fileno(), numbers, number):
                        os.close(file)
                    Spare.run(json.loads(text), files)
                os.write(number, str(child).encode())
                os._exit(0)
            os.waitpid(middle, 0)  # the fork is an orphan now, and adopted
            requests.send(os.read(numbers, 32))
            for file in (*files, numbers, number):
                os.close(file)

    @staticmethod
    def run(task, files):
        "In the fork: what `python -m` does."
        code = 1
        try:
            for number, file in enumerate(files):
                os.dup2(file, number)
            for file in set(files) - {0, 1, 2}:
                os.close(file)
            if task["session"]:
                os.setsid()
            os.chdir(task["cwd"])
            os.environ.clear()
            os.environ.update(task["env"])
            sys.path[:0] = [task["cwd"], *task["env"].get("PYTHONPATH", "").split(os.pathsep)]
            import torch

            torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
            sys.argv = task["words"][2:]
            runpy.run_module(task["words"][2], run_name="__main__", alter_sys=True)
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
            if isinstance(end.code, str):
                sys.stderr.write(end.code + "\n")
        except BaseException:
            traceback.print_exc()
        finally:
            with suppress(BaseException):
                multiprocessing.util._exit_function()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


# --- the warm process


def execute(task):
    """In a fork: run the notebook's cells; an error ends it."""
    import nbdev.test
    import pandas
    from execnb.nbio import read_nb, write_nb
    from execnb.shell import CaptureShell
    from nbdev.config import get_config

    adopt_orphans(True)
    Spare.fork().replace_popen()

    class WrittenShell(CaptureShell):
        """A shell that writes the notebook that it ran."""

        def __init__(self, path, report):
            super().__init__(path)
            self.report = report

        def run_all(self, notebook, **settings):
            try:
                super().run_all(notebook, **settings)
            finally:
                write_nb(notebook, self.report)

    path = Path(task["path"])
    if task["parameters"] is None:
        if task["report"]:
            pandas.set_option("display.max_columns", 20)  # as in a notebook, which this process is not
            nbdev.test.CaptureShell = partial(WrittenShell, report=task["report"])
        good, _ = nbdev.test.test_nb(path, skip_flags=get_config().tst_flags.split(), basepath=get_config().config_path)
        return good
    import nbformat
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    report = Path(task["report"])
    notebook = parameterize_notebook(
        load_notebook_node(str(path)), task["parameters"], kernel_name="python3", language="python"
    )
    nbformat.write(notebook, report)
    os.chdir(report.parent)
    sys.path.insert(0, "")  # as in a kernel
    book = read_nb(report)
    shell = CaptureShell(path)
    # as a kernel has them: the parameters, what papermill gave, and the cell that checks both
    shell.user_ns["In"] = ["", *[cell.source for cell in book.cells if cell.cell_type == "code"][:3]]
    try:
        shell.run_all(book, exc_stop=True)
        return True
    except BaseException:
        sys.stderr.write(shell.prettytb(fname=path) + "\n")
        return False
    finally:
        write_nb(book, report)


def fork(task):
    """Run a task in a fork; what it and its children write is kept."""
    with tempfile.TemporaryDirectory(dir=task["folder"]) as folder:
        log = Path(folder) / "log"
        outcome = Path(folder) / "outcome"
        began = time.perf_counter()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setsid()
                output = os.open(log, os.O_CREAT | os.O_WRONLY)
                for stream in (1, 2):
                    os.dup2(output, stream)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.environ.update({**task["env"], "TMPDIR": task["folder"]})
                tempfile.tempdir = None
                good = bool(execute(task))
                used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
                outcome.write_text(json.dumps({"good": good, "cpu": sum(one.ru_utime + one.ru_stime for one in used)}))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        late = not wait(child, task["limit"])
        try:
            os.killpg(child, signal.SIGKILL)  # and whatever the notebook left behind
        except ProcessLookupError:
            pass
        if late:
            os.waitpid(child, 0)
        seconds = time.perf_counter() - began
        message = log.read_text(errors="replace")[-8000:] if log.exists() else ""
        ended = json.loads(outcome.read_text()) if outcome.exists() else {"good": False, "cpu": 0.0}
        if late:
            message += f"\nnot done after {task['limit']} s"
        return {"good": ended["good"] and not late, "cpu": ended["cpu"], "seconds": seconds, "message": message}


def wait(child, limit):
    """Whether a child ended within its time."""
    until = time.monotonic() + limit
    while time.monotonic() < until:
        if os.waitpid(child, os.WNOHANG)[0]:
            return True
        time.sleep(0.02)
    return False


def serve():
    """Import what notebooks import, then run tasks until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an import prints is no answer
    sys.modules["rfc3987_syntax"] = None  # nbformat would read its 38 grammars for 1.5 s; none is used
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in sorted((ROOT / "complearn").rglob("*.py"))
    ]
    libraries = [
        "nbdev.test",
        "execnb.shell",
        "papermill.iorw",
        "pandas",
        "plotly.graph_objects",
        "sklearn.linear_model",
        "scipy.stats",
    ]
    libraries += ["ipywidgets", "anywidget", "torch._dynamo"]
    for name in [*libraries, *(name for name in names if not name.endswith(("__init__", "_modidx")))]:
        importlib.import_module(name)
    importlib.import_module("complearn.data.worlds.rendering")._distance_tables()  # that every picture of a world needs
    gc.collect()
    gc.freeze()  # the collector of a fork looks at the notebook's objects alone
    there = socket.socket(fileno=int(sys.argv[1]))
    if os.fork() == 0:
        Spare.serve(there)
    there.close()
    for line in sys.stdin:
        answers.write(json.dumps(fork(json.loads(line))) + "\n")
        answers.flush()
    gc.unfreeze()  # else libraries take what the collector leaves at the end for leaks, and say so


if __name__ == "__main__":
    serve()
