"""The seam at which Brax's PPO is stepped from outside.

`brax.training.agents.ppo.train.train` keeps optimiser state, environment states and random keys
in local variables: it can neither hand them out nor take them back, and it stops only at its end.
All of them pass through one call, the compiled training epoch that it makes with `jax.pmap`.
Here that call is lent to a function of ours. Networks, losses, optimiser, rollouts and the epoch
itself stay Brax's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jax

from s3n_mjx import compat  # noqa: F401 - before brax

from brax.training.agents.ppo import train as ppo  # isort: skip

# `(epoch, training_state, env_state, keys) -> (training_state, env_state, metrics)`, where the
# epoch takes the last three and gives what is returned. All have a leading axis over devices.
Around = Callable[[Callable[..., Any], Any, Any, Any], tuple[Any, Any, Any]]


class _Jax:
    """The module `jax` as Brax's loop sees it: all of it, but for one function."""

    def __init__(self, around: Around):
        self._around = around
        self.reached = False

    def __getattr__(self, name: str) -> Any:
        return getattr(jax, name)

    def pmap(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
        if function.__name__ != "training_epoch":
            return jax.pmap(function, *args, **kwargs)
        self.reached = True
        del kwargs["donate_argnums"]  # so that what an epoch began with outlives it
        return functools.partial(self._around, jax.pmap(function, *args, **kwargs))


@contextmanager
def stepped(around: Around) -> Iterator[None]:
    """While it lasts, `ppo.train` calls ``around`` in the place of its compiled epoch.

    Args:
        around: called for every epoch with the epoch and its arguments; gives what the epoch
            would. The epoch leaves its arguments as they are.
    """
    seen = _Jax(around)
    ppo.jax = seen  # pyright: ignore[reportAttributeAccessIssue]
    try:
        yield
    finally:
        ppo.jax = jax
    if not seen.reached:
        raise RuntimeError(
            "this version of Brax has no training_epoch; the project is made for 0.14.2"
        )
