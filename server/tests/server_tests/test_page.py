"""The page's files: served to anybody, without data, self-contained, under a strict policy."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pegainfer_server
import pytest
from pegainfer_server.routes.page import PAGE_PATHS

from .served import Server, serving

STATIC = Path(pegainfer_server.__file__).parent / "static"
ELSEWHERE = re.compile(r"(https?:)?//[a-z0-9.-]+\.[a-z]+", re.IGNORECASE)
#: Namespaces are names, not addresses.
NAMESPACE = "http://www.w3.org/2000/svg"


def test_every_file_is_served_and_known(server: Server) -> None:
    assert {path.name for path in STATIC.iterdir()} == {
        path.rpartition("/")[2] or "index.html" for path in PAGE_PATHS
    }
    for path in PAGE_PATHS:
        response = server.get(path)
        assert response.status_code == 200
        assert response.content == (STATIC / (path.rpartition("/")[2] or "index.html")).read_bytes()
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert response.headers["x-content-type-options"] == "nosniff"
        assert server.client.head(path).content == b""
    assert server.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert server.get("/page/main.js").headers["content-type"].startswith("text/javascript")


def test_nothing_comes_from_elsewhere_and_nothing_is_inline() -> None:
    for file in STATIC.iterdir():
        text = file.read_text(encoding="utf-8").replace(NAMESPACE, "")
        assert not ELSEWHERE.search(text), file.name
        assert "innerHTML" not in text
        assert "insertAdjacentHTML" not in text
        assert "document.write" not in text
    page = (STATIC / "index.html").read_text()
    for address in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert address in PAGE_PATHS
    for address in re.findall(r'from "([^"]+)"', (STATIC / "main.js").read_text()):
        assert address in PAGE_PATHS
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=", page)


def test_every_id_that_scripts_name_is_on_the_page() -> None:
    page = (STATIC / "index.html").read_text()
    ids = set(re.findall(r'id="([^"]+)"', page))
    scripts = "".join(file.read_text() for file in STATIC.glob("*.js"))
    named = set(re.findall(r'(?:byId|show)\("([^"]+)"', scripts))
    assert named - ids == set()


def test_keys_guard_all_but_the_page(folder: Path) -> None:
    digests = (hashlib.sha256(b"one").digest(),)
    with serving(folder, key_digests=digests) as server:
        for path in PAGE_PATHS:
            assert server.get(path).status_code == 200
            assert b'"m"' not in server.get(path).content
        for path in (
            "/page/../v1/models",
            "/page/x",
            "/page/",
            "//",
            "/page/main.js/",
            "/v1/models",
        ):
            response = server.client.get(f"{server.url}{path}")
            assert response.status_code == 401, path
        assert server.client.post("/", json={}).status_code == 401


@pytest.mark.parametrize("path", ["/page/x.js", "/page/index.html", "/page/%2e%2e%2fapp.py"])
def test_there_are_no_other_files(server: Server, path: str) -> None:
    assert server.get(path).json()["error"]["code"] == "unknown_path"
