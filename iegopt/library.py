"""The library of cards: models, devices, links and execution paths, one file each.

Cards are looked up by name or alias, whatever the case, and a file is parsed when its card is first
asked for: a file is named after its card, and aliases are found by scanning for their line only. The
cards are read with the same reader as a user's files, so every quantity carries its unit.

========  ===================  ============================  =============
kind      folder               document key and spec         function
========  ===================  ============================  =============
llm       ``models/llm``       ``model``, LlmCard            ``llm``
device    ``models/devices``   ``device_card``, DeviceCard   ``device``
link      ``models/links``     ``link``, LinkCard            ``link``
path      ``models/paths``     ``path``, PathCard            ``path``
profile   ``models/profiles``  ``profile``, Profile          ``profiles``
========  ===================  ============================  =============
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

from iegopt.errors import InputError, InternalError
from iegopt.spec.cluster import LinkCard
from iegopt.spec.device import DeviceCard
from iegopt.spec.explain_error import nearest
from iegopt.spec.llm import LlmCard
from iegopt.spec.load import load_document
from iegopt.spec.profile import Profile
from iegopt.spec.variant import PathCard
from iegopt.units import shown

__all__ = [
    "DEFAULT_LINKS", "Kind", "all_cards", "card_name", "compatible", "data_dir", "device", "find_device", "has_card",
    "link", "llm", "names", "path", "profiles",
]  # fmt: skip

Kind = Literal["llm", "device", "link", "path", "profile"]

DEFAULT_LINKS: dict[str, str] = {
    "domain": "NVLink3",
    "host": "PCIe4-x16",
    "rack": "RoCE-100G",
    "datacenter": "Ethernet-25G",
    "wan": "WAN-1G",
}
"""Level -> the link card it has where a cluster says nothing: a modest one, which few real clusters fall short of."""

EXTRA_FOLDERS = "IEGOPT_MODELS"
"""Environment variable: folders of own cards, laid out like ``models``, separated as in PATH."""

_FOLDER: dict[Kind, str] = {"llm": "llm", "device": "devices", "link": "links", "path": "paths", "profile": "profiles"}
_KEY: dict[Kind, str] = {"llm": "model", "device": "device_card", "link": "link", "path": "path", "profile": "profile"}
_SAID: dict[Kind, str] = {
    "llm": "model", "device": "device model", "link": "link", "path": "path of model", "profile": "profile",
}  # fmt: skip
_ALIASES = re.compile(r"^  aliases: \[(.*)\]$", re.MULTILINE)


def data_dir(name: Literal["models", "instances"]) -> Path:
    """The folder ``models`` or ``instances``: inside an installed package, or at the root of the sources.

    Raises
    ------
    InternalError
        The package was built without its data.
    """
    package = Path(__file__).parent
    for folder in (package / "_data" / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise InternalError(f"iegopt was installed without its folder {name}: reinstall it")


def llm(name: str) -> LlmCard:
    """The card of a model (raises ``InputError`` with the nearest known name)."""
    card: LlmCard = _card("llm", card_name("llm", name))
    return card


def device(name: str) -> DeviceCard:
    """The card of a device model (raises ``InputError`` with the nearest known name)."""
    card: DeviceCard = _card("device", card_name("device", name))
    return card


def find_device(name: str) -> DeviceCard | None:
    """The card of a device model, ``None`` where there is none: a cluster may describe devices of its own."""
    return device(name) if has_card("device", name) else None


def link(name: str) -> LinkCard:
    """The card of a link (raises ``InputError`` with the nearest known name)."""
    card: LinkCard = _card("link", card_name("link", name))
    return card


def path(model: str) -> PathCard | None:
    """The variants the library ships of a model, ``None`` where it ships none."""
    known = _resolve("path", _resolve("llm", model) or model)
    if known is None:
        return None
    card: PathCard = _card("path", known)
    return card


def profiles() -> tuple[Profile, ...]:
    """All measured profiles, for ``iegopt.cost.profile.Profiles``."""
    return tuple(all_cards("profile"))


def card_name(kind: Kind, name: str) -> str:
    """The name that a card is filed under (raises ``InputError`` with the nearest known name)."""
    found = _resolve(kind, name)
    if found is not None:
        return found
    family = [known for known in names(kind) if known.lower().startswith(f"{name}-".lower())]
    guess = " or ".join(family[:3]) or nearest(name, (*names(kind), *(alias for alias, _ in _aliased(kind))))
    hint = f"Maybe {guess}?" if guess else f"Expected one of the {len(names(kind))} cards of models/{_FOLDER[kind]}"
    raise InputError(f"unknown {_SAID[kind]} {shown(name)}. {hint}")


def has_card(kind: Kind, name: str) -> bool:
    """Whether a card has this name or alias."""
    return _resolve(kind, name) is not None


def names(kind: Kind) -> tuple[str, ...]:
    """The names of all cards of a kind, in alphabetical order."""
    return tuple(sorted((file.stem for file in _files(kind).values()), key=str.lower))


def all_cards(kind: Kind) -> Iterator[Any]:
    """All cards of a kind, in the order of ``names``."""
    return (_card(kind, name) for name in names(kind))


@lru_cache(maxsize=4096)
def compatible(variant_devices: tuple[str, ...], device_model: str) -> bool:
    """Whether a variant's ``compatible_devices`` cover a device model.

    They do by its name or an alias, or by a family: a name up to a hyphen (``A100`` covers
    ``A100-80GB`` and not ``A1000``). The device model need not be in the library.
    """
    model = _resolve("device", device_model) or device_model
    return any(
        (_resolve("device", listed) or listed).lower() == model.lower()
        or f"{model}-".lower().startswith(f"{listed}-".lower())
        for listed in variant_devices
    )


def _resolve(kind: Kind, name: str) -> str | None:
    """The name a card is filed under, ``None`` where there is no such card."""
    if file := _files(kind).get(name.lower()):
        return file.stem
    return _aliases(kind).get(name.lower())


@cache
def _files(kind: Kind) -> dict[str, Path]:
    """Lower-case name -> file; a card of the user's folders comes before the library's of that name."""
    folders = [data_dir("models"), *map(Path, filter(None, os.environ.get(EXTRA_FOLDERS, "").split(os.pathsep)))]
    for folder in folders[1:]:
        if not folder.is_dir():
            raise InputError(f"{EXTRA_FOLDERS}: {folder}: no such folder")
    return {file.stem.lower(): file for folder in folders for file in (folder / _FOLDER[kind]).glob("*.yaml")}


@cache
def _aliases(kind: Kind) -> dict[str, str]:
    """Lower-case alias -> name."""
    return {alias.lower(): name for alias, name in _aliased(kind)}


@cache
def _aliased(kind: Kind) -> tuple[tuple[str, str], ...]:
    """Every (alias, name), read from the one line that a card keeps its aliases on."""
    lines = ((_ALIASES.search(file.read_text(encoding="utf-8")), file.stem) for file in _files(kind).values())
    return tuple((alias.strip(), name) for line, name in lines if line for alias in line[1].split(","))


@cache
def _card(kind: Kind, name: str) -> Any:
    return load_document(_files(kind)[name.lower()], _KEY[kind])[1]
