"""Remember Ctrl-C, so that a command ends with it even where Python drops the exception."""

from __future__ import annotations

import signal
import sys
import threading


class Interrupts:
    """Remember Ctrl-C: Python drops one that comes while Py4J, in a weak reference's callback, talks to the JVM."""

    def __init__(self) -> None:
        self.seen = False
        self._is_ours = False
        self._unraisable = sys.unraisablehook

    def __enter__(self) -> Interrupts:
        # an application that has a handler of its own, or runs us in another thread, keeps what it has
        if threading.current_thread() is threading.main_thread():
            self._is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._is_ours:
            signal.signal(signal.SIGINT, self._note)
            self._unraisable, sys.unraisablehook = sys.unraisablehook, self._quietly
        return self

    def _quietly(self, dropped: sys.UnraisableHookArgs) -> None:
        if not isinstance(dropped.exc_value, KeyboardInterrupt):  # that one is remembered
            self._unraisable(dropped)

    def _note(self, number: int, frame: object) -> None:
        self.seen = True
        raise KeyboardInterrupt

    def check(self) -> None:
        """Raise if there was one."""
        if self.seen:
            raise KeyboardInterrupt

    def answer(self) -> None:
        """Forget it: the command ends because of it, and in a way of its own."""
        self.seen = False

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            sys.unraisablehook = self._unraisable
        if kind is None:
            self.check()
