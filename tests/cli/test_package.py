"""What a user gets from `pip install`: a light import, a command, and a wheel with its data."""

import os
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import pairton
from pairton import formats

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "pythia8mc", "fastjet", "dask", "distributed", "matplotlib", "lightning", "tensorboard", "onnx")


def run(*arguments, **options):
    return subprocess.run(arguments, capture_output=True, text=True, **options)


def test_importing_pairton_imports_nothing_heavy():
    script = "import pairton, pairton.cli, sys; print(' '.join(m for m in sys.modules if '.' not in m))"
    loaded = set(run(sys.executable, "-c", script).stdout.split())
    assert "pairton" in loaded
    assert not loaded & set(HEAVY)


def test_the_command_reconstruct_starts_without_vector_but_python_has_its_methods(tmp_path):
    events = pairton.read("sample:ttbar_allhad")[:3]
    assert not set(events.jets.fields) & {"mass", "px"}
    assert (events.jets[:, 0] + events.jets[:, 1]).mass[0] > events.jets.mass[0, 0]
    source = tmp_path / "three.h5"
    with formats.create(source, events.topology) as writer:
        writer.write(events)
    script = "import sys, pairton.cli\ntry: pairton.cli.main()\nfinally: print([m in sys.modules for m in NAMES])"
    script = script.replace("NAMES", "('pairton.events.events', 'vector', 'sympy')")
    done = run(sys.executable, "-c", script, "reconstruct", str(source), "-o", str(tmp_path / "out.parquet"))
    assert done.stdout.splitlines()[-1] == "[True, False, False]", done.stderr


def test_every_public_name_is_there():
    assert set(pairton.__all__) <= set(dir(pairton))
    for name in pairton.__all__:
        assert getattr(pairton, name) is not None
    with pytest.raises(AttributeError, match=r"no attribute .recontruct"):
        pairton.recontruct  # noqa: B018


def test_version_and_citation():
    command = [sys.executable, "-c", "from pairton.cli import main; main()"]
    assert run(*command, "--version").stdout.strip() == f"pairton, version {pairton.__version__}"
    cited = run(*command, "--cite").stdout
    assert cited.count("@") == 2
    assert pairton.__version__ in cited
    assert f"version: {pairton.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_the_package_runs_as_a_module():
    assert run(sys.executable, "-m", "pairton", "--version").stdout.split()[-1] == pairton.__version__


def test_a_mistake_is_one_line_and_exit_code_2():
    done = run(
        sys.executable, "-c", "from pairton.cli import main; main()", "list", "topologies", "nothing_like_this"
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "nothing_like_this" in done.stderr


def test_the_wheel_contains_topologies_samples_and_weights(tmp_path):
    # built without isolation: the backend is in the test environment, and nothing is downloaded
    built = run(
        sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT),
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    data = [
        p.relative_to(ROOT / "src").as_posix()
        for folder in ("topologies", "samples", "models", "generator/cards")
        for p in (ROOT / "src/pairton" / folder).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    ]
    assert set(data) <= inside
    for ending in ("ttbar_allhad.yaml", "samples/ttbar_allhad.h5", "models/ttbar_allhad/model.onnx"):
        assert any(name.endswith(ending) for name in inside), ending
    assert "pairton/py.typed" in inside


def test_the_generator_installs_from_wheels():
    """Pythia 8.318 is source alone: its build takes half an hour."""
    requirements = {r.name: r.specifier for r in map(Requirement, metadata.requires("pairton")) if r.marker}
    assert "8.317.2" in requirements["pythia8mc"]
    assert "8.318.0" not in requirements["pythia8mc"]
