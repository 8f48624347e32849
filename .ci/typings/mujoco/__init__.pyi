"""MuJoCo ships no type stubs; without this pyright knows none of its names."""

from typing import Any

def __getattr__(name: str) -> Any: ...
