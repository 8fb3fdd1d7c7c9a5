__version__ = "0.1.0"

import os

# "1": shapes and types in the rooms with tensors; "all": in the generators too
_check = os.environ.get("COMPLEARN_TYPECHECK", "0")
if _check in ("1", "all"):
    from beartype import beartype as _check_all
    from jaxtyping import install_import_hook

    # two names of one checker: compiled modules are kept by its name, and those of "1" lack the checks of "all"
    if _check == "all":
        install_import_hook(["complearn"], "complearn._check_all")
    else:
        _rooms = ("models", "training", "evaluation", "analysis")
        install_import_hook([f"complearn.{room}" for room in _rooms], "beartype.beartype")

# a process that opens a folder has started this one, which gets no network either
if os.environ.get("COMPLEARN_OFFLINE") == "1":
    from complearn.core import trust  # noqa: F401

# functions of complearn.api, imported when they are asked for
_DOOR = (
    "load",
    "export",
    "read",
    "train",
    "judge",
    "study",
    "runs",
    "search",
    "codes",
    "edits",
    "negatives",
    "concepts",
    "stages",
    "maps",
)


def __getattr__(name: str):
    if name not in _DOOR:
        raise AttributeError(f"module 'complearn' has no attribute {name!r}; its functions are {', '.join(_DOOR)}")
    import importlib

    return getattr(importlib.import_module("complearn.api"), name)


def __dir__() -> list[str]:
    return sorted([*_DOOR, "__version__"])
