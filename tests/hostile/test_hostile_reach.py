"""Which files a run opens, as strace sees it: the input, the model, the result, libraries. No connection."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

import hdf5_makers
import onnx_makers
from event_files import write_events

LIBRARIES = ("/usr", "/lib", "/lib64", "/opt", "/proc", "/sys", "/dev")
SETTINGS = (  # that libraries read
    *("/etc/ld.so", "/etc/localtime", "/etc/os-release", "/etc/ssl/", "/etc/locale.alias", "/etc/nsswitch.conf"),
    *("/etc/mime.types", "/etc/passwd"),  # torch asks for the user's name
)
OPENED = re.compile(r'open(?:at2?)?\((?:AT_FDCWD, )?"((?:[^"\\]|\\.)*)", ([^)]*)\) = (-?\d+)')
CONNECTED = re.compile(r"connect\(.*sa_family=(AF_INET6?)")


@pytest.fixture
def traced(tmp_path):
    """Runs a command under strace in a folder of its own; paths that it opened there or anywhere but libraries."""
    if shutil.which("strace") is None:
        pytest.skip("no strace")
    place = tmp_path / "place"
    for name in (".ssh/id_rsa", ".netrc", ".config/pairton/config.yaml", "secret.h5", "secret.bin"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(b"S" * 4096)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    environment |= {"HOME": str(place), "TMPDIR": str(tmp_path / "temporary"), "PYTHONDONTWRITEBYTECODE": "1"}
    (tmp_path / "temporary").mkdir()
    known = {
        str(tmp_path / "temporary"),
        *sysconfig.get_paths().values(),
        *sys.path,
        sys.prefix,
        sys.base_prefix,
        *LIBRARIES,
    }
    known = {os.path.realpath(path) for path in known if path} - {str(place), "/"}

    def run(*words):
        log = tmp_path / "log"
        events = "trace=open,openat,openat2,creat,connect"
        command = ["strace", "-f", "-qq", "-s", "4096", "-e", events, "-o", log, sys.executable, "-P", "-c"]
        command += ["from pairton.cli import main; main()", *words]
        done = subprocess.run(list(map(str, command)), cwd=place, env=environment, capture_output=True, text=True)
        if "ptrace" in done.stderr:
            pytest.skip("this system does not let strace work")
        text = log.read_text()
        assert "AF_INET" not in CONNECTED.findall(text)
        found = set()
        for name, flags, result in OPENED.findall(text):
            path = os.path.realpath(place / name)
            library = path.startswith(SETTINGS) or any(path == one or path.startswith(f"{one}/") for one in known)
            if int(result) >= 0 and "O_DIRECTORY" not in flags and not library and path != str(place):
                found.add(os.path.relpath(path, place))
        return done, found

    run.place = place
    return run


def is_temporary(name):
    return re.fullmatch(r"\.out\.[0-9a-f]{8}\.parquet", name)


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".h5", ".root", ".parquet"])
@pytest.mark.parametrize("engine", ["onnx", "torch"])
def test_only_input_model_and_result_are_opened(traced, decays, model_folder, suffix, engine):
    write_events(decays(20), traced.place / f"in{suffix}")
    shutil.copytree(model_folder, traced.place / "model")
    words = ("reconstruct", f"in{suffix}", "-o", "out.parquet", "--model", "model", "--engine", engine)
    done, found = traced(*words)
    assert done.returncode == 0, done.stderr
    allowed = {f"in{suffix}", "model/model.json", "model/model.onnx", "model/model.safetensors"}
    assert {name for name in found - allowed if not is_temporary(name)} == set()
    assert f"in{suffix}" in found


@pytest.mark.long
@pytest.mark.parametrize("maker", hdf5_makers.LEAKS, ids=lambda maker: maker.__name__)
def test_a_data_file_opens_no_other(traced, source, model_folder, maker):
    shutil.copy(source, traced.place / "secret.h5")
    shutil.copy(source, traced.place / "in.h5")
    maker(traced.place / "in.h5", traced.place / "secret.h5")
    done, found = traced("reconstruct", "in.h5", "-o", "out.parquet", "--model", model_folder / "model.onnx")
    assert done.returncode == 2
    assert {name for name in found if not name.endswith("model.onnx")} == {"in.h5"}


@pytest.mark.long
@pytest.mark.parametrize("maker", onnx_makers.LEAKS, ids=lambda maker: maker.__name__)
def test_a_model_opens_no_other_file(traced, source, model_folder, maker):
    shutil.copy(source, traced.place / "in.h5")
    (traced.place / "net.onnx").write_bytes(maker((model_folder / "model.onnx").read_bytes()))
    done, found = traced("reconstruct", "in.h5", "-o", "out.parquet", "--model", "net.onnx")
    assert done.returncode == 2
    assert found <= {"in.h5", "net.onnx"}
