"""The parent's side: a pool, and a thread of ours for each of its processes."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import pickle
import queue
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from posttrain.errors import DeadlineExceeded, HostError, InfraError, UsageError, WorkerLost

START_SECONDS: Final = 120.0  # a worker's start and the import of a target; long, for starved hosts
STARVED: Final = 10.0  # a call that is still runnable after this many deadlines of wall time was starved, not slow ...
STARVED_SECONDS: Final = 120.0  # ... but not before this much: a crowded host gives a tenth of a core for minutes
MAX_RESULT: Final = 64 << 20  # bytes of JSON
HEADER: Final = struct.Struct("!Q")  # a message's length in bytes, before it
BOOT: Final = (
    "import json, sys; setup = json.loads(sys.argv[1]); sys.path[:] = setup['path']; "
    "from posttrain.processes.worker import serve; serve(setup)"
)


class TargetRaised(InfraError):
    """The target raised; ``kind`` is its exception's type name, ``text`` its message, ``trace`` the formatted traceback."""

    def __init__(self, target: str, kind: str, text: str, trace: str) -> None:
        super().__init__(f"{target} raised {kind}: {text}")
        self.kind = kind
        self.text = text
        self.trace = trace


class Workers:
    """A pool of at most ``num`` worker processes, safe from any thread and any event loop.

    ``memory`` bounds a worker's address space in bytes (0: unbounded); after ``recycle`` calls a worker makes way for a
    fresh one. Workers start with the first call. A target is "module:function" or "path.py:function"; its arguments must
    pickle and its result must be JSON.
    """

    def __init__(self, num: int = 2, name: str = "workers", *, memory: int = 4 << 30, recycle: int = 2000) -> None:
        if num < 1 or recycle < 1:
            raise ValueError(f"a pool needs at least one worker and one call each, got num={num}, recycle={recycle}")
        self.name = name
        self.num = num
        self.memory = memory
        self.recycle = recycle
        self._lock = threading.Lock()
        self._reset()
        _POOLS.add(self)

    def call_sync(self, target: str, *args: Any, deadline: float) -> Any:
        """Runs ``target(*args)`` in a worker and returns its result.

        Raises DeadlineExceeded after ``deadline`` seconds of its own, WorkerLost when its process died, TargetRaised when it
        raised, UsageError when there is no such target, HostError when no process can be started. Waiting for a free worker
        is bounded by the deadlines of the calls before this one.
        """
        return self._submit(target, args, deadline).result()

    async def call(self, target: str, *args: Any, deadline: float) -> Any:
        """``call_sync`` without blocking the event loop; cancelling it before a worker took it withdraws it."""
        return await asyncio.wrap_future(self._submit(target, args, deadline))

    def close(self) -> None:
        """Kills all workers; what was under way raises WorkerLost. The pool cannot be used again."""
        with self._lock:
            self._closed = True
            workers = list(self._workers)
        for _ in workers:
            self._jobs.put(None)
        for worker in workers:
            worker.slay()
        for worker in workers:
            if worker.thread is not threading.current_thread():
                worker.thread.join(5.0)
        while not self._jobs.empty():
            job = self._jobs.get_nowait()
            if job is not None and job.future.set_running_or_notify_cancel():
                job.future.set_exception(WorkerLost(f"pool {self.name!r} was closed while {job.target} waited for a worker"))

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that run now."""
        with self._lock:
            return [w.process.pid for w in self._workers if w.process is not None and w.process.poll() is None]

    def _submit(self, target: str, args: tuple[Any, ...], deadline: float) -> Future[Any]:
        if not deadline > 0:
            raise ValueError(f"the deadline of {target} is {deadline}; it must be above 0 seconds")
        job = _Job(_absolute(target), pickle.dumps((_absolute(target), deadline, args)), float(deadline), Future())
        with self._lock:
            if self._closed:
                raise WorkerLost(f"pool {self.name!r} is closed")
            while len(self._workers) < self.num:
                self._workers.append(_Worker(self))
                self._workers[-1].thread.start()
            self._jobs.put(job)
        return job.future

    def _reset(self) -> None:
        """A pool without workers: at birth, and in a forked child, where the parent's threads do not exist."""
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._workers: list[_Worker] = []
        self._seen: set[str] = set()  # targets so far, which a replacement imports before it is asked
        self._closed = False


@dataclass(frozen=True, slots=True)
class _Job:
    target: str
    request: bytes
    deadline: float
    future: Future[Any]


class _Worker:
    """One process and the thread of ours that talks to it."""

    def __init__(self, pool: Workers) -> None:
        self.pool = pool
        self.process: subprocess.Popen[bytes] | None = None
        self.calls = 0
        self.lifeline = -1
        self.thread = threading.Thread(target=self.run, name=f"posttrain-{pool.name}", daemon=True)

    def run(self) -> None:
        """Takes jobs until the pool closes; keeps a warm process ready between them."""
        while not self.pool._closed:
            with contextlib.suppress(InfraError, HostError):  # the next job tries once more and learns why not
                self.ready()
            job = self.pool._jobs.get()
            if job is None:
                break
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                self.ready()
                job.future.set_result(self.perform(job))
            except BaseException as exc:
                job.future.set_exception(exc)
        self.kill()

    def ready(self) -> None:
        """A live process that has said hello; starts one where there is none."""
        if self.process is not None and self.process.poll() is None and self.calls < self.pool.recycle:
            return
        self.kill()
        with self.pool._lock:  # close() sees either no process or this one
            if self.pool._closed:
                raise WorkerLost(f"pool {self.pool.name!r} is closed")
            self.start()
        hello = self.read(time.monotonic() + START_SECONDS)
        if hello is None:
            self.kill()
            raise WorkerLost(f"a worker of pool {self.pool.name!r} did not start within {START_SECONDS:g} s")

    def start(self) -> None:
        """Starts the process; it holds the far end of a pipe whose closing kills it, so it never outlives us."""
        try:
            theirs, ours = os.pipe()
        except OSError as exc:
            raise HostError(f"no pipe could be opened for pool {self.pool.name!r}: {exc}") from exc
        setup = {"path": sys.path, "memory": self.pool.memory, "lifeline": theirs, "warm": sorted(self.pool._seen)}
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, json.dumps(setup)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs],
                start_new_session=True,
                env=env,
                bufsize=0,
            )
        except OSError as exc:
            os.close(ours)
            raise HostError(f"no worker process could be started for pool {self.pool.name!r}: {exc}") from exc
        finally:
            os.close(theirs)
        self.lifeline = ours
        self.calls = 0
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def perform(self, job: _Job) -> Any:
        """One call, from sending it to its result; the process does not survive a broken or a late one."""
        name = f"{job.target} in pool {self.pool.name!r}"
        self.calls += 1
        kept = False
        try:
            try:
                self.send(job.request, time.monotonic() + START_SECONDS)
                begun = self.read(time.monotonic() + START_SECONDS)
            except BrokenPipeError:
                raise WorkerLost(f"the worker of {name} died before it began") from None
            if begun is None:
                raise DeadlineExceeded(f"the start of {name}", START_SECONDS)
            if "absent" in begun:
                kept = True
                raise UsageError(str(begun["absent"]))
            self.pool._seen.add(job.target)
            reply = self.await_reply(name, job.deadline)
            kept = True
        finally:
            if not kept:
                self.kill()
        if "raised" in reply:
            kind, text, trace = (str(x) for x in reply["raised"])
            raise TargetRaised(job.target, kind, text, trace)
        return reply["result"]

    def await_reply(self, name: str, deadline: float) -> Mapping[str, Any]:
        """Waits for the reply; late means the worker spent the deadline's CPU or slept through it, else the host starved it."""
        began, spent = time.monotonic(), self.cpu()[0]
        until = began + deadline
        while True:
            reply = self.read(until)
            if reply is not None:
                return reply
            cpu, runnable = self.cpu()
            left = deadline - (cpu - spent)
            if left <= 0.02 * deadline or not runnable:
                raise DeadlineExceeded(name, deadline)
            waited = time.monotonic() - began
            if waited > max(STARVED * deadline, STARVED_SECONDS):
                raise WorkerLost(f"{name} got {cpu - spent:.2f} s of CPU in {waited:.0f} s; the host is starved")
            until = time.monotonic() + left

    def cpu(self) -> tuple[float, bool]:
        """CPU seconds of the process so far, and whether it is runnable; (inf, False) where the host does not say."""
        assert self.process is not None
        try:
            stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return float("inf"), False
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK"), stat[0] in "RD"

    def send(self, body: bytes, until: float) -> None:
        """Writes one framed message; raises BrokenPipeError when the process is gone or does not read."""
        assert self.process is not None and self.process.stdin is not None
        fd, data = self.process.stdin.fileno(), memoryview(HEADER.pack(len(body)) + body)
        while data:
            if not _poll(fd, select.POLLOUT, until):
                raise BrokenPipeError
            data = data[os.write(fd, data) :]

    def read(self, until: float) -> Mapping[str, Any] | None:
        """One framed message, None at the deadline. Raises WorkerLost when the process died or babbles."""
        assert self.process is not None and self.process.stdout is not None
        fd, data, need = self.process.stdout.fileno(), bytearray(), HEADER.size
        while len(data) < need:
            if not _poll(fd, select.POLLIN, until):
                return None
            chunk = os.read(fd, min(need - len(data), 1 << 20))
            if not chunk:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(5.0)
                raise WorkerLost(f"a worker of pool {self.pool.name!r} died ({_how(self.process.returncode)})")
            data += chunk
            if len(data) == HEADER.size and need == HEADER.size:
                need += HEADER.unpack(data)[0]
                if need > MAX_RESULT:
                    raise WorkerLost(f"a worker of pool {self.pool.name!r} sent {need:,} bytes; at most {MAX_RESULT:,} are read")
        try:
            message = json.loads(bytes(data[HEADER.size :]))
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            raise WorkerLost(f"a worker of pool {self.pool.name!r} sent something that is not a reply")
        return message

    def slay(self) -> None:
        """Kills the process and whatever it started; safe from any thread."""
        process = self.process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kills the process, waits for it and closes its pipes; only from the worker's own thread."""
        if self.process is None:
            return
        self.slay()
        with contextlib.suppress(subprocess.TimeoutExpired):  # SIGKILL cannot be refused, but a starved host takes a while
            self.process.wait(60.0)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        os.close(self.lifeline)
        self.lifeline, self.process = -1, None


_POOLS: Final[weakref.WeakSet[Workers]] = weakref.WeakSet()
_SHARED: Final[dict[str, Workers]] = {}
_SHARED_LOCK: Final = threading.Lock()
_INHERITED: Final[list[Any]] = []  # a forked child's view of its parent's workers, kept so that nothing tidies them away


def shared(name: str = "verifiers") -> Workers:
    """The pool of this name, made at its first use and closed when the process ends."""
    with _SHARED_LOCK:
        if name not in _SHARED or _SHARED[name]._closed:
            _SHARED[name] = Workers(num=2, name=name)
        return _SHARED[name]


def _close_all() -> None:
    for pool in list(_POOLS):
        pool.close()


def _forget_all() -> None:
    for pool in list(_POOLS):
        for worker in pool._workers:
            if worker.lifeline >= 0:
                os.close(worker.lifeline)
        _INHERITED.append(pool._workers)
        pool._lock = threading.Lock()
        pool._reset()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)


def _poll(fd: int, event: int, until: float) -> bool:
    """Whether ``fd`` became ready (or was closed at the other end) before ``until``."""
    poll = select.poll()
    poll.register(fd, event)
    return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))


def _how(code: int | None) -> str:
    if code is None:
        return "it closed its pipe"
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"


def _absolute(target: str) -> str:
    """A target with its path made absolute, so that it means the same in the worker."""
    place, colon, function = target.rpartition(":")
    if not colon or not place or not function:
        raise UsageError(f"the target {target!r} must be 'module:function' or 'path.py:function'")
    return f"{Path(place).expanduser().absolute()}:{function}" if place.endswith(".py") else target
