"""The wheel, built and installed elsewhere, holds the code and the data and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from iegopt import library

ROOT = Path(__file__).parent.parent
LARGEST_WHEEL = 2_000_000

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run("-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("elsewhere")
    run("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", target, wheel, cwd=target)
    return target


def test_wheel_holds_code_and_data_and_nothing_else(wheel: Path) -> None:
    files = ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in files}
    assert {top for top in tops if not top.endswith(".dist-info")} <= {"iegopt", "iegopt_runtime"}
    assert "iegopt/py.typed" in files
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in files)
    for folder in ("models", "instances"):
        sources = {f.relative_to(ROOT).as_posix() for f in (ROOT / folder).rglob("*") if f.suffix in {".yaml", ".json"}}
        assert sources
        assert {f"iegopt/_data/{name}" for name in sources} <= set(files)
    assert wheel.stat().st_size <= LARGEST_WHEEL


def test_installed_package_finds_its_cards_and_instances(installed: Path) -> None:
    code = """
import json, pathlib, iegopt
from iegopt import library
print(json.dumps({
    "file": iegopt.__file__,
    "cards": {kind: library.names(kind) for kind in ("llm", "device", "link", "path")},
    "kv": library.llm("Llama-2-70B").kv_bytes_per_token(),
    "clusters": sorted(file.stem for file in (library.data_dir("instances") / "clusters").glob("*.yaml")),
}))
"""
    # -P and the path put in by hand: the sources must not be found in their place.
    start = f"import sys; sys.path.insert(0, {str(installed)!r})\n"
    seen = json.loads(run("-P", "-c", start + code, cwd=installed))
    assert Path(seen["file"]).is_relative_to(installed)
    for kind in ("llm", "device", "link", "path"):
        assert tuple(seen["cards"][kind]) == library.names(kind)
    assert seen["kv"] == 2 * 80 * 8 * 128 * 2
    assert "mixed-racks" in seen["clusters"]
