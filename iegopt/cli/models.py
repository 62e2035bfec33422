"""``iegopt models``: the library of model, device, link and path cards, with their sources."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from iegopt.cli.arguments import Commands
from iegopt.cli.format import count, data, dollars, plain, rate, seconds
from iegopt.cli.output import print_json, show
from iegopt.cli.plugged import plugged

if TYPE_CHECKING:
    from iegopt.library import Kind

__all__ = ["add_commands"]

KINDS: tuple[Kind, ...] = ("llm", "device", "link", "path")

_Columns = tuple[tuple[str, str], ...]
_TABLES: dict[str, tuple[str, _Columns, Callable[[Any], tuple[str, ...]]]] = {
    "llm": (
        "Models",
        (
            ("name", "left"), ("kind", "left"), ("parameters", "right"), ("active", "right"), ("layers", "right"),
            ("KV/token", "right"), ("context", "right"), ("native", "left"),
        ),
        lambda card: (
            card.name, card.kind, count(card.parameters), count(card.active), str(card.layers),
            data(card.kv_bytes_per_token()), count(card.max_context), str(card.native_precision),
        ),
    ),
    "device": (
        "Devices",
        (
            ("name", "left"), ("type", "left"), ("vendor", "left"), ("memory", "right"), ("bandwidth", "right"),
            ("16 bit", "right"), ("fp8", "right"), ("example price", "right"),
        ),
        lambda card: (
            card.name, str(card.type), card.vendor, data(card.memory.vram), rate(card.memory.bandwidth),
            rate(card.compute.fp16_flops or card.compute.bf16_flops, "FLOP/s"), rate(card.compute.fp8_flops, "FLOP/s"),
            f"{dollars(card.example_price)}/h",
        ),
    ),
    "link": (
        "Links",
        (("name", "left"), ("level", "left"), ("bandwidth", "right"), ("latency", "right")),
        lambda card: (card.name, card.level, rate(card.bandwidth), seconds(card.latency)),
    ),
    "path": (
        "Execution paths",
        (("model", "left"), ("variants", "left")),
        lambda card: (card.model, ", ".join(f"{v.precision}/{v.backend}" for v in card.variants)),
    ),
}  # fmt: skip


def add_commands(commands: Commands) -> None:
    parser = commands.add_parser(
        "models", help="list and show the cards of the library", description="The library of cards, with their sources."
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the cards", description="List the cards of the library.")
    listing.add_argument("kind", nargs="?", choices=KINDS, metavar="KIND", help=f"one of {', '.join(KINDS)}; none: all")
    listing.add_argument("--json", action="store_true", help="one JSON object on stdout: the names by kind")
    listing.set_defaults(run=_list)
    showing = actions.add_parser("show", help="show a card", description="Show a card with its sources.")
    showing.add_argument("name", metavar="NAME", help="name or alias of a card, whatever its case")
    showing.add_argument("--json", action="store_true", help="one JSON object on stdout: the cards by kind")
    showing.set_defaults(run=_show)
    for module in plugged("iegopt.models"):
        module.add_actions(actions)


def _list(arguments: argparse.Namespace) -> int:
    from iegopt import library

    kinds: tuple[Kind, ...] = KINDS if arguments.kind is None else (arguments.kind,)
    if arguments.json:
        print_json({kind: list(library.names(kind)) for kind in kinds})
        return 0
    from iegopt.cli.render import table

    parts = []
    for kind in kinds:
        title, columns, row = _TABLES[kind]
        made = table(title, *columns)
        for card in library.all_cards(kind):
            made.add_row(*map(plain, row(card)))
        parts.append(made)
    show(*parts)
    return 0


def _show(arguments: argparse.Namespace) -> int:
    cards = _cards(arguments.name)
    if arguments.json:
        print_json({kind: card.document() for kind, card in cards.items()})
        return 0
    from iegopt.cli.render import table

    parts = []
    for kind, card in cards.items():
        made = table(f"{kind} {getattr(card, 'name', None) or card.model}", ("field", "left"), ("value", "left"))
        sources = table("Sources", ("of", "left"), ("source", "left"))
        for field, value in card.document().items():
            if field == "sources":
                for what, source in value.items():
                    sources.add_row(plain(what), plain(source))
            elif field not in ("name", "model"):
                made.add_row(field, _text(value))
        parts += [made, sources]
    show(*parts)
    return 0


def _cards(name: str) -> dict[str, Any]:
    """The cards of this name: a model comes with its paths."""
    from iegopt import library
    from iegopt.errors import InputError
    from iegopt.spec.explain_error import nearest
    from iegopt.units import shown

    found: dict[str, Any] = {}
    for kind, look in (
        ("llm", library.llm),
        ("device", library.device),
        ("link", library.link),
        ("path", library.path),
    ):
        try:
            card = look(name)
        except InputError:  # not a card of this kind; all kinds are asked
            continue
        if card is not None:
            found[kind] = card
    if not found:
        guess = nearest(name, [known for kind in ("llm", "device", "link") for known in library.names(kind)])
        hint = f"Maybe {guess}?" if guess else "iegopt models list shows all"
        raise InputError(f"no card is called {shown(name)}. {hint}")
    return found


def _text(value: object) -> str:
    """A value of a card as text: mappings as ``key value``, a line each where they are long."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(entry)}" for key, entry in value.items())
    if isinstance(value, list):
        entries = [_text(entry) for entry in value]
        return "\n".join(entries) if any(isinstance(entry, dict) for entry in value) else ", ".join(entries)
    return plain(str(value))
