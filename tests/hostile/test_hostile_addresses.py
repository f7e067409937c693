"""URLs: which are read, which are refused, and that no request and no message carries a secret."""

import base64
import json
import sys
import threading
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

import pairton
from event_files import write_events
from pairton.errors import InputError, MissingExtraError, PairtonError
from pairton.formats import files
from pairton.formats.files import check_address, expand
from pairton.formats.root_files import open_root
from pairton.reconstruction.provenance import result_metadata

SECRET = "hunter2"
WITH_PASSWORD = f"https://me:{SECRET}@nowhere.invalid/a.root"


@contextmanager
def serving(handler):
    """The address of a server on this machine."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    made.daemon_threads = True
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_port}"
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


class Silent(BaseHTTPRequestHandler):
    """Writes down no requests."""

    def log_message(self, *_):
        pass

    def start(self, code=200, **headers):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


@contextmanager
def server(content=b"", password=None):
    """The address of a server of one file, and the paths of the requests that it received."""
    asked = []
    expected = None if password is None else "Basic " + base64.b64encode(password.encode()).decode()

    class Handler(Silent):
        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            asked.append(self.path)
            if expected is not None and self.headers.get("Authorization") != expected:
                self.send_error(401)
                return
            first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            part = content[int(first) : int(last) + 1 if last else None]
            place = f"bytes {first}-{int(first) + len(part) - 1}/{len(content)}"
            code = 206 if "Range" in self.headers else 200
            self.start(code, Accept_Ranges="bytes", Content_Length=len(part), Content_Range=place)
            if self.command == "GET":
                self.wfile.write(part)

    with serving(Handler) as address:
        yield address, asked


class Dripping(Silent):
    """A byte now and then, of a file that never ends."""

    piece, pause = b"\x89", 0.2
    about: ClassVar = {"Content_Length": 1_000_000, "Accept_Ranges": "bytes"}

    def do_HEAD(self):
        self.start(**self.about)

    def do_GET(self):
        self.start(**self.about)
        with suppress(OSError):
            while True:
                self.wfile.write(self.piece)
                time.sleep(self.pause)


class Streaming(Dripping):
    """Zeros without end; the server says nothing of a length."""

    piece, pause, about = bytes(65536), 0, {}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", ["a.h5", "a.parquet", "a.root"])
@pytest.mark.parametrize(("handler", "message"), [(Dripping, ""), (Streaming, "download it first")])
def test_a_server_that_never_ends_is_one_line(monkeypatch, handler, message, name):
    pytest.importorskip("aiohttp")
    if handler is Dripping:
        monkeypatch.setattr(files, "TIMEOUT", 2)
    with serving(handler) as address, pytest.raises(PairtonError) as caught:
        pairton.read(f"{address}/{name}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def template(tmp_path, monkeypatch):
    """A function that writes x.json, with a template that asks a server for the name of a variable."""

    def write(address):
        monkeypatch.setenv("TOKEN", SECRET)
        refs = {"a.h5": [f"{address}/{{{{ env['TOKEN'] }}}}"], "a.root": [f"{address}/{SECRET}"]}
        (tmp_path / "x.json").write_text(json.dumps({"version": 1, "templates": {}, "refs": refs}))
        monkeypatch.chdir(tmp_path)

    return write


@pytest.mark.parametrize("prefix", ["@", "urls:"])
@pytest.mark.parametrize(
    "line", ["reference://a.h5::x.json", "reference://a.root::x.json", "reference://x.json", "@inner.txt"]
)
def test_a_list_sends_nothing_to_a_server(tmp_path, template, refused, prefix, line):
    with server() as (address, asked):
        template(address)
        (tmp_path / "inner.txt").write_text("reference://a.h5::x.json\n")
        (tmp_path / "list.txt").write_text(f"{line}\n")
        said = refused("inspect", f"{prefix}list.txt")
    assert not asked
    assert "names URLs" in said if prefix == "@" else "are not read" in said


@pytest.mark.parametrize("address", ["reference::x.json", "reference::x.root", "zip://a::b.zip", "a::b.root"])
def test_chains_are_refused_wherever_a_file_is_opened(template, address):
    with server() as (host, asked):
        template(host)
        for use in (expand, pairton.read, open_root, pairton.formats.open_source):
            with pytest.raises(InputError, match="chains of addresses"):
                use(address)
        assert result_metadata(address) is None
    assert not asked


@pytest.mark.parametrize(
    "scheme", ["file+x", "memory", "local", "ftp", "github", "dask", "libarchive", "HTTP", "sftp", "FILE", ""]
)
def test_other_schemes_are_refused(scheme, monkeypatch):
    monkeypatch.setenv("PAIRTON_SCHEMES", "davs,webdav")
    with pytest.raises(InputError, match=r"only those of http, https, root, s3, gs, davs, webdav: download"):
        check_address(f"{scheme}://host/a.h5")
    for known in ("http", "https", "root", "s3", "gs", "davs", "webdav", "file"):
        check_address(f"{known}://host/a.h5")


def test_a_list_names_urls_only_if_asked(tmp_path, source):
    pytest.importorskip("aiohttp")
    (tmp_path / "outer.txt").write_text("@inner.txt\n")
    with server(source.read_bytes()) as (address, asked):
        (tmp_path / "inner.txt").write_text(f"{address}/a.h5\n")
        (tmp_path / "sly.txt").write_text("urls:inner.txt\n")
        for name in ("inner", "outer", "sly"):
            with pytest.raises(InputError, match=r"this list names URLs.*give the list as urls:.*\.txt"):
                pairton.read(f"@{tmp_path / name}.txt")
        assert not asked
        for name in ("inner", "outer", "sly"):
            assert len(pairton.read(f"urls:{tmp_path / name}.txt")) == len(pairton.read(source))


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "IN"),
        ("reconstruct", "IN", "-o", "out.h5"),
        ("evaluate", "IN"),
        ("evaluate", "sample:ttbar_allhad", "--assignments", "IN"),
        ("convert", "IN", "out.h5"),
        ("inspect", "--verify", "IN"),
        ("reconstruct", "sample:ttbar_allhad", "--model", "IN"),
        ("reconstruct", "sample:ttbar_allhad", "-o", "IN"),
        ("inspect", "urls:list.txt"),
        ("inspect", "@list.txt"),
        ("inspect", f"zip::{WITH_PASSWORD}"),
        ("inspect", f"s3://key:{SECRET}@bucket/a.h5"),
        ("inspect", f"https:///me:{SECRET}@nowhere.invalid/a.root"),
    ],
)
def test_no_message_repeats_a_password(tmp_path, monkeypatch, refused, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text(WITH_PASSWORD)
    assert SECRET not in refused(*[WITH_PASSWORD if word == "IN" else word for word in words])


@pytest.mark.parametrize("name", ["a.h5", "a.root", "a.parquet"])
def test_passwords_come_from_netrc(tmp_path, monkeypatch, source, name):
    pytest.importorskip("aiohttp")
    events = pairton.read(source)
    write_events(events, tmp_path / name)
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    (tmp_path / "netrc").chmod(0o600)
    with server((tmp_path / name).read_bytes(), f"me:{SECRET}") as (address, _):
        monkeypatch.setenv("NETRC", str(tmp_path / "none"))
        with pytest.raises(InputError, match=r"no such file|cannot be opened"):
            pairton.read(f"{address}/other/{name}")
        monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
        assert len(pairton.read(f"{address}/{name}")) == len(events)


def test_without_aiohttp_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    for address in ("https://host/a.h5", "https://host/*.h5"):
        with pytest.raises(MissingExtraError, match=r"pairton\[http\]"):
            pairton.read(address)
