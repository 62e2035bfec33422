"""Names in a cluster's file that nothing would ever look up: a slip of the pen there must not pass for a choice."""

from __future__ import annotations

from iegopt import library
from iegopt.errors import InputError
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import nearest
from iegopt.spec.variant import ExecutionPath
from iegopt.units import shown

__all__ = ["check_names"]


def check_names(cluster: ClusterSpec) -> None:
    """Refuse resident variants, execution paths and compatible devices that do not exist.

    Raises
    ------
    InputError
        Naming the entry, and the nearest name that exists.
    """
    own: dict[str, ExecutionPath] = {}
    models = {device.model for device in cluster.devices}
    for number, path in enumerate(cluster.execution_path_registry or ()):
        where = f"cluster.execution_path_registry.{number}"
        name = _model(path.model, f"{where}.model")
        if name in own:
            raise InputError(f"{where}.model: {name} stands twice: put its variants into one entry")
        own[name] = path
        for i, variant in enumerate(path.variants):
            for listed in variant.compatible_devices:
                _device(listed, models, f"{where}.variants.{i}.compatible_devices")
    for number, device in enumerate(cluster.devices):
        for resident in device.resident or ():
            _resident(resident, own, f"cluster.devices.{number}.resident")
        for measured in device.load_times:
            _resident(measured, own, f"cluster.devices.{number}.load_times")


def _model(name: str, where: str) -> str:
    try:
        return library.card_name("llm", name)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _device(listed: str, models: set[str], where: str) -> None:
    """A card, an alias or a family of the library, or a model that the cluster describes itself."""
    known = (*library.names("device"), *models)
    if not any(library.compatible((listed,), model) for model in known):
        guess = nearest(listed, known)
        raise InputError(f"{where}: no device model is called {shown(listed)}" + (f". Maybe {guess}?" if guess else ""))


def _resident(name: str, own: dict[str, ExecutionPath], where: str) -> None:
    """``model`` or ``model/precision/backend``; an alias may itself hold a slash."""
    if library.has_card("llm", name):
        return
    written, _, artifact = name.partition("/")
    model = _model(written, where)
    path = own.get(model) or library.path(model)
    variants = [variant.artifact for variant in path.variants] if path else []
    if artifact.lower() not in [variant.lower() for variant in variants]:
        guess = nearest(artifact, variants)
        hint = f"Maybe {written}/{guess}?" if guess else f"Expected one of {', '.join(variants) or 'none'}"
        raise InputError(f"{where}: {model} has no variant {shown(artifact)}. {hint}")
