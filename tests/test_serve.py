"""A real server on a real socket: what it gives, and above all what it refuses."""

import os
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from threading import Thread

import pytest

import pixelcert as pc
from pixelcert.report import write_page
from pixelcert.report.page import PageServer


@pytest.fixture
def server(make_votes, tmp_path) -> Iterator[PageServer]:
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "site").mkdir()
    written = write_page(tmp_path / "site" / "report.html", [make_votes(), make_votes(n=90)], limit=0)
    (written.folder / "secret.js").write_text("secret")
    (written.folder / "counts-00000000000000000000.js").symlink_to(tmp_path / "secret.txt")
    with PageServer(written.page) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: PageServer, path: str = "/", method: str = "GET", host: str | None = None) -> tuple[int, bytes, dict]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=120)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    response = connection.getresponse()
    answer = response.status, response.read(), dict(response.getheaders())
    connection.close()
    return answer


def send(server: PageServer, request: bytes) -> bytes:
    """The first bytes of the answer to a request of which every byte is ours."""
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=120) as connection:
        connection.sendall(request)
        return connection.recv(1000)


def test_page_and_chunks_are_served(server):
    status, body, headers = ask(server)
    assert (status, body) == (200, server.page.read_bytes())
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Type"] == "text/html; charset=utf-8"
    chunks = [file for file in (server.page.parent / "report_files").glob("counts-*.js") if not file.is_symlink()]
    assert len(chunks) == 2
    for file in chunks:
        status, body, headers = ask(server, f"/report_files/{file.name}")
        assert (status, body) == (200, file.read_bytes())
        assert headers["Content-Type"].startswith("text/javascript")


def test_page_written_anew_is_served_with_its_new_chunks(server, make_votes):
    page = server.page
    assert ask(server)[0] == 200
    folder = write_page(page, [make_votes(n=80)], limit=0).folder
    (chunk,) = [file for file in folder.glob("counts-*.js") if not file.is_symlink()]
    assert ask(server)[1] == page.read_bytes()
    assert ask(server, f"/report_files/{chunk.name}")[:2] == (200, chunk.read_bytes())
    page.write_text("no page any more")
    assert ask(server)[0] == 404


def test_link_to_a_page_is_followed_at_the_start_and_not_later(make_votes, tmp_path):
    written = write_page(tmp_path / "report.html", [make_votes()], limit=0)
    link = tmp_path / "latest.html"
    link.symlink_to(written.page)
    (tmp_path / "secret.txt").write_text("secret")
    with PageServer(link) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            assert ask(server)[:2] == (200, written.page.read_bytes())
            (chunk,) = written.folder.iterdir()
            assert ask(server, f"/report_files/{chunk.name}")[0] == 200
            written.page.unlink()
            written.page.symlink_to(tmp_path / "secret.txt")
            assert ask(server)[0] == 404
        finally:
            server.shutdown()
            thread.join()


def test_head_is_get_without_a_body(server):
    status, body, headers = ask(server, method="HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) == server.page.stat().st_size


def test_it_listens_on_this_machine_alone(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    assert server.url == f"http://127.0.0.1:{server.server_port}/"


@pytest.mark.parametrize(
    "path",
    [
        "/report.html/../../secret.txt",
        "/../secret.txt",
        "/report_files/../../secret.txt",
        "/report_files/%2e%2e/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fsecret.txt",
        "/..\\secret.txt",
        "//etc/passwd",
        "/etc/passwd",
        "file:///etc/passwd",
        "http://127.0.0.1/",
        "/report_files/",
        "/report_files/secret.js",
        "/report_files/counts-00000000000000000000.js",  # a link that leads out
        "/?x",
        "/favicon.ico",
        "*",
    ],
)
def test_nothing_else_exists(server, path):
    status, body, _ = ask(server, path)
    assert status == 404
    assert b"secret" not in body
    assert b"root:" not in body


def test_a_link_put_in_place_of_a_chunk_is_not_followed(server, tmp_path):
    file = next(f for f in (server.page.parent / "report_files").glob("counts-*.js") if not f.is_symlink())
    file.unlink()
    file.symlink_to(tmp_path / "secret.txt")
    assert ask(server, f"/report_files/{file.name}")[0] == 404
    file.unlink()
    os.mkfifo(file)  # which would block whoever reads it
    assert ask(server, f"/report_files/{file.name}")[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.1", "[::1]"])
def test_other_hosts_are_refused(server, host):
    status, body, _ = ask(server, host=host)
    assert status == 421
    assert b"<html" not in body


def test_localhost_is_a_name_of_this_machine(server):
    assert ask(server, host=f"localhost:{server.server_port}")[0] == 200


def test_requests_without_a_host_or_with_two_are_refused(server):
    host = f"Host: 127.0.0.1:{server.server_port}\r\n".encode()
    assert b"421" in send(server, b"GET / HTTP/1.1\r\n\r\n").splitlines()[0]
    assert b"421" in send(server, b"GET / HTTP/1.0\r\n\r\n").splitlines()[0]
    assert b"421" in send(server, b"GET / HTTP/1.1\r\n" + 2 * host + b"\r\n").splitlines()[0]
    assert b"<html" not in send(server, b"GET /\r\n\r\n")
    assert b"200" in send(server, b"GET / HTTP/1.1\r\n" + host + b"\r\n").splitlines()[0]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_other_methods_are_refused(server, method):
    status, body, headers = ask(server, method=method)
    assert status == 405
    assert headers["Allow"] == "GET, HEAD"
    assert b"<html" not in body


def test_only_pages_of_its_own_and_free_ports_are_taken(server, tmp_path):
    other = tmp_path / "other.html"
    other.write_text("<!doctype html><title>other</title>")
    with pytest.raises(pc.ArgumentError, match="not a page that pixelcert wrote"):
        PageServer(other)
    with pytest.raises(pc.ArgumentError, match="cannot be read"):
        PageServer(tmp_path / "absent.html")
    with pytest.raises(pc.ArgumentError, match="choose another"):
        PageServer(server.page, server.server_port)
    with pytest.raises(pc.ArgumentError, match="port=70000 is not a whole number from 0 to 65535"):
        PageServer(server.page, 70_000)
