"""The same sandboxes without ``await``, for a notebook or a script: one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from typing import Any, Self

from posttrain.sandboxes._base import PLAIN, Backend, Needs


class Blocking:
    """``with Blocking(Namespaces()) as host: box = host.create(); box.exec(python="print(1)").stdout``.

    Every method of the host and of its sandboxes is there, waits for its result, and raises what the asynchronous one raises.
    A kept program's ``output`` is a plain iterator.
    """

    def __init__(self, backend: Backend) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandboxes", daemon=True)
        self._opening = backend.open()

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._host = self._wait(self._opening.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            self._wait(self._opening.__aexit__(*error))
        finally:
            self._stop()

    @property
    def level(self) -> str:
        return str(self._host.level)

    def create(self, needs: Needs = PLAIN) -> Any:
        """A sandbox whose methods wait. Raises SandboxUnavailable, SandboxLost."""
        return _Waiting(self._wait(self._host.create(needs)), self._wait)

    def _wait(self, coroutine: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Waiting:
    """Stands for a sandbox or a kept program; what they return that is itself one of them is wrapped too."""

    def __init__(self, inner: Any, wait: Any) -> None:
        self._inner, self._wait = inner, wait

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            result = found(*args, **options)
            if hasattr(result, "__anext__"):
                return self._each(result)
            return self._wrapped(self._wait(result))

        return call

    def _each(self, items: Any) -> Any:
        while True:
            try:
                yield self._wait(items.__anext__())
            except StopAsyncIteration:
                return

    def _wrapped(self, result: Any) -> Any:
        return _Waiting(result, self._wait) if hasattr(result, "exec") or hasattr(result, "send") else result
