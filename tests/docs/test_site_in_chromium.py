"""The built documentation in a browser: links, width on a phone, navigation, dark mode. Slow: it starts Chromium."""

from __future__ import annotations

import functools
import html.parser
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urlparse

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow
REPOSITORY = Path(__file__).resolve().parents[2]
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
SOURCE = "https://git.example.org/skills"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing of each request."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of the built pages, and their folder."""
    pytest.importorskip("zensical", reason="the extra docs is not installed (make docs)")
    copy = tmp_path_factory.mktemp("site")
    for name in ("docs", "src", "tools"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "mkdocs.yml", copy)
    handler = functools.partial(Quiet, directory=str(copy / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        built = subprocess.run(
            [Path(sys.executable).parent / "zensical", "build", "--strict"],
            capture_output=True, text=True, check=False, cwd=copy,
            env={**os.environ, "ADK_SKILLS_SITE_URL": url, "ADK_SKILLS_REPOSITORY_URL": SOURCE},
        )  # fmt: skip
        assert built.returncode == 0, built.stdout + built.stderr
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield url, copy / "site"
        finally:
            server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    assert chromium is not None, "no chromium: apt-get install chromium (make test-slow does it as root)"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


class _Article(html.parser.HTMLParser):
    """The text of a page without its navigation, and that of its paragraphs."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.paragraphs: list[str] = []
        self._in = {"article": False, "p": False}
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in self._in:
            self._in[tag] = True
            if tag == "p":
                self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._in:
            self._in[tag] = False

    def handle_data(self, data: str) -> None:
        if self._in["article"]:
            self.text += data
            if self._in["p"]:
                self.paragraphs[-1] += data


def pages(folder: Path) -> list[str]:
    found = sorted(path.parent.relative_to(folder).as_posix() for path in folder.rglob("index.html"))
    assert len(found) > 50
    return ["" if name == "." else f"{name}/" for name in found]


def opened(browser: Browser, **options: Any) -> Page:
    page = browser.new_page(**options)
    page.route(lambda url: not url.startswith("http://127.0.0.1"), lambda route: route.abort())  # nothing foreign
    return page


def test_no_link_and_no_picture_leads_nowhere(browser: Browser, site: tuple[str, Path]) -> None:
    url, folder = site
    page = opened(browser, viewport=DESK, java_script_enabled=False)
    ids: dict[str, set[str]] = {}
    links: list[tuple[str, str]] = []
    for name in pages(folder):
        page.goto(url + name, wait_until="load")
        ids[url + name] = set(page.eval_on_selector_all("[id]", "nodes => nodes.map(node => node.id)"))
        hrefs = page.eval_on_selector_all("a[href]", "nodes => nodes.map(node => node.href)")
        links += [(name, link) for link in hrefs if link.startswith(url)]
        broken = page.eval_on_selector_all(
            "img", "nodes => nodes.filter(node => !node.naturalWidth).map(node => node.src)"
        )
        assert broken == [], name
    page.close()
    nowhere = set()
    for name, link in links:
        target, fragment = urldefrag(link)
        path = unquote(urlparse(target).path).lstrip("/")
        if target in ids:
            if fragment and unquote(fragment) not in ids[target]:
                nowhere.add((name, link))
        elif not (folder / path).is_file():
            nowhere.add((name, link))
    assert nowhere == set()


def test_no_page_shows_raw_markdown_or_internal_numbers(site: tuple[str, Path]) -> None:
    """A fence or a list that the generator does not understand is text, and so is all that follows it.

    Nor does one show the numbers of requirements and attacks that the code refers to.
    """
    _, folder = site
    raw = {}
    for name in pages(folder):
        article = _Article((folder / name / "index.html").read_text())
        found = [sign for sign in ("```", "norun", "|---|", "| --- |") if sign in article.text]
        found += [text for text in article.paragraphs if re.search(r"\A#+ |\n(- |\d+\. |\|)", text)]
        if not name.endswith(("requirements/", "proxy-heads/")):
            found += re.findall(r"\bS[0-4]-\d+\b|attack rows? \d+|SANDBOX\.md", article.text)
        if found:
            raw[name] = found
    assert raw == {}


def test_no_page_scrolls_sideways_on_a_phone(browser: Browser, site: tuple[str, Path]) -> None:
    url, folder = site
    page = opened(browser, viewport=PHONE)
    wide = {}
    for name in pages(folder):
        page.goto(url + name, wait_until="load")
        width = page.evaluate("document.scrollingElement.scrollWidth")
        if width > PHONE["width"]:
            wide[name] = width
    page.close()
    assert wide == {}


def test_a_page_has_grouped_navigation_the_next_page_dark_mode_and_the_repository(
    browser: Browser, site: tuple[str, Path]
) -> None:
    url, _ = site
    page = opened(browser, viewport=DESK, color_scheme="light")
    page.goto(f"{url}how-to/packages/", wait_until="load")
    tabs = [" ".join(text.split()) for text in page.locator(".md-tabs__link").all_inner_texts()]
    assert tabs == ["Home", "Tutorial", "How-to guides", "Reference", "Explanation"]
    assert page.locator(f"a[href^='{SOURCE}']").count() >= 1
    assert page.locator(".md-footer__link--prev").count() == 1
    page.locator(".md-footer__link--next").click()
    page.wait_for_url(f"{url}how-to/files/")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.locator("label[title='Dark mode']").first.click()
    page.wait_for_function("document.body.getAttribute('data-md-color-scheme') === 'slate'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.close()


def test_the_reference_has_signatures_and_no_markup_of_another_tool(browser: Browser, site: tuple[str, Path]) -> None:
    url, _ = site
    page = opened(browser, viewport=DESK)
    page.goto(f"{url}reference/python/toolsets/", wait_until="load")
    text = page.inner_text("article")
    assert "SkillToolset(" in text
    assert "dependencies" in text
    for name in ("toolsets", "events", "skills", "sandbox", "errors"):
        page.goto(f"{url}reference/python/{name}/", wait_until="load")
        assert ":class:`" not in page.inner_text("article")
    page.close()
