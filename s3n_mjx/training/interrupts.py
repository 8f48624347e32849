"""Ctrl-C and SIGTERM: a running training stops where nothing is lost."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import NoReturn

from s3n_mjx.errors import Terminated

# A terminal and a launcher may both pass on the same signal.
_SAME_S = 1.0
# What each signal does the second time, when waiting is over.
_EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


class Interrupts:
    """While entered, the first SIGINT or SIGTERM is an attribute to look at; the second ends all.

    Compiled code cannot be interrupted: without this a signal would wait for it as long and then
    throw its result away. Before :meth:`begin` there is no result, and the first one ends at
    once, too.

    Args:
        before: what to say when it ends before there is a result.
    """

    def __init__(self, before: str = "stopped before anything was trained"):
        self._before = before

    def __enter__(self) -> Interrupts:
        self.asked: signal.Signals | None = None
        self._begun = False
        # A background job whose shell ignores Ctrl-C for it goes on ignoring it.
        self._old = {}
        if threading.current_thread() is threading.main_thread():
            for number in _EXIT_CODES:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._old[number] = signal.signal(number, self._ask)
        if self._old:
            # Python calls a handler when compiled code returns; the byte that the signal itself
            # writes lets a thread answer at once.
            self._read, self._write = os.pipe()
            os.set_blocking(self._write, False)
            self._old_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            threading.Thread(target=self._answer, args=(self._read,), daemon=True).start()
        return self

    def begin(self) -> None:
        """From here on there is something to lose."""
        self._begun = True

    def _next(self, pipe: int) -> signal.Signals | None:
        """The next of our signals, None at the end."""
        while byte := os.read(pipe, 1):
            if byte[0] in self._old:
                return signal.Signals(byte[0])
        return None

    def _answer(self, pipe: int) -> None:
        first = self._next(pipe)
        if first is not None:
            if not self._begun:
                print(f"\n{self._before}", file=sys.stderr, flush=True)
                os._exit(0 if first == signal.SIGTERM else _EXIT_CODES[first])
            print(
                "\nstopping as soon as a checkpoint is written; once more to stop without",
                file=sys.stderr,
                flush=True,
            )
            begun = time.monotonic()
            # Python would make one of two signals that come while compiled code runs.
            # Checkpoints are renamed when they are whole, so nothing is torn.
            while (second := self._next(pipe)) is not None:
                if time.monotonic() - begun > _SAME_S:
                    os._exit(_EXIT_CODES[second])
        os.close(pipe)

    def _ask(self, number: int, _: object) -> None:
        self.asked = self.asked or signal.Signals(number)

    def stop(self, number: int, kept: str) -> NoReturn:
        """End the work as ``number`` asks for.

        Args:
            number: what was asked.
            kept: what there is to go on from.

        Raises:
            Terminated: for SIGTERM.
            KeyboardInterrupt: for SIGINT.
        """
        if number == signal.SIGTERM:
            raise Terminated(kept)
        raise KeyboardInterrupt(kept)

    def __exit__(self, *_: object) -> None:
        if self._old:
            signal.set_wakeup_fd(self._old_fd)
            for number, handler in self._old.items():
                signal.signal(number, handler)
            os.close(self._write)  # ends the thread
