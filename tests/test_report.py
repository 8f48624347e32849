"""A report is one well-formed page that needs nothing outside itself."""

import base64
import re
import struct
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure

from s3n_mjx.evaluation import metrics, plots
from s3n_mjx.evaluation.report import Picture, Section, Table, Text, Video, table_of, write_report

VOID = {"meta", "img", "br", "hr", "link", "input"}
MP4 = bytes(range(256)) * 5
HOSTILE = "<script>alert(\"1\")</script> & 'more'"
FIGURES = {
    "episodes": 4.0,
    "pitch_rmse_rad": 0.02114,
    "contact_kept_fraction": 0.981,
    "contact_kept_fraction_FL": 0.99,
    "pitch_phase_lag_rad": float("nan"),
    "another_task": 1.25,
}


class Page(HTMLParser):
    """A parsed page; its tags must be balanced.

    Attributes:
        elements: (tag, attributes) in the order of the page.
        texts: (path of tags such as "html/body/p", text) of all text that is not blank.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in {tag}"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append(("/".join(self._open), data.strip()))

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.elements if name == tag]

    def inside(self, tag: str) -> list[str]:
        """The texts whose innermost element is this one."""
        return [text for path, text in self.texts if path.split("/")[-1] == tag]


def figure(title: str = "a line") -> Figure:
    fig = Figure(figsize=(4.0, 3.0), layout="constrained")
    fig.suptitle(title)
    fig.subplots().plot([0.0, 1.0, 0.5])
    return fig


def decoded(url: str, media_type: str) -> bytes:
    prefix = f"data:{media_type};base64,"
    assert url.startswith(prefix)
    return base64.b64decode(url.removeprefix(prefix), validate=True)


@pytest.fixture
def video(tmp_path):
    path = tmp_path / "video.mp4"
    path.write_bytes(MP4)
    return path


def write(path, video, title="Pitch tracking", cell="0.021"):
    table = Table(("metric", title), (("error", cell), ("lag", "-")), caption=title)
    sections = [
        Section("Figures of merit", (table, table_of(FIGURES))),
        Section(title, (Text(title), Picture(figure(), caption=title, alt=title))),
        Section("Video", (Video(video, caption=title),)),
    ]
    return write_report(path, title, f"{title}: it works.", sections, {title: cell, "date": "?"})


@pytest.fixture
def page(tmp_path, video) -> Page:
    return Page(write(tmp_path / "report.html", video).read_text("utf-8"))


def test_a_page_with_all_kinds_of_blocks(page):
    assert page.inside("title") == page.inside("h1") == ["Pitch tracking"]
    assert page.inside("p") == ["Pitch tracking: it works.", "Pitch tracking"]
    assert page.inside("h2") == [
        "Figures of merit",
        "Pitch tracking",
        "Video",
        "How this was made",
    ]
    assert page.inside("dt") == ["Pitch tracking", "date"]
    assert page.inside("dd") == ["0.021", "?"]
    assert page.inside("figcaption") == ["Pitch tracking"] * 2


def test_nothing_outside_is_referred_to(tmp_path, video):
    text = write(tmp_path / "report.html", video).read_text("utf-8")
    assert not re.search(r"https?://|@import|url\(", text)
    page = Page(text)
    assert not page.all("script")
    assert not page.all("link")
    for tag, attributes in page.elements:
        assert attributes.get("src", "data:").startswith("data:"), tag
        assert attributes.get("href", "#").startswith("#"), tag
        assert not any(name.startswith("on") for name in attributes), tag
    (policy,) = [m["content"] for m in page.all("meta") if "http-equiv" in m]
    assert policy.startswith("default-src 'none'")


def test_the_contents_lead_to_the_sections(page):
    links = [a["href"].removeprefix("#") for a in page.all("a")]
    assert links == [s["id"] for s in page.all("section")]
    assert page.inside("a") == page.inside("h2")


def test_a_short_page_has_neither_contents_nor_facts(tmp_path):
    path = write_report(tmp_path / "a.html", "A", "B.", [Section("C", (Text("D"),))] * 2, {})
    page = Page(path.read_text("utf-8"))
    assert not page.all("nav")
    assert not page.all("dl")
    assert page.inside("p") == ["B.", "D", "D"]


def test_text_is_never_markup(tmp_path, video):
    path = write(tmp_path / "report.html", video, title=HOSTILE, cell=HOSTILE)
    text = path.read_text("utf-8")
    assert "<script" not in text
    page = Page(text)
    for tag in ("title", "h1", "h2", "caption", "th", "td", "figcaption", "dt", "dd", "a"):
        assert HOSTILE in page.inside(tag), tag
    assert [i["alt"] for i in page.all("img")] == [HOSTILE]
    assert [v["aria-label"] for v in page.all("video")] == [HOSTILE]


def test_the_same_content_gives_the_same_bytes(tmp_path, video):
    first = write(tmp_path / "a.html", video).read_bytes()
    assert write(tmp_path / "b.html", video).read_bytes() == first
    assert b"matplotlib" not in decoded(
        Page(first.decode("utf-8")).all("img")[0]["src"], "image/png"
    )


def test_the_figure_is_embedded_at_full_resolution(page):
    (image,) = page.all("img")
    png = decoded(image["src"], "image/png")
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (4 * plots.DPI, 3 * plots.DPI)
    assert (image["width"], image["height"]) == ("384", "288"), "4 x 3 inches of 96 pixels"


def test_the_video_is_embedded(page):
    (player,) = page.all("video")
    assert "controls" in player
    assert "autoplay" not in player
    assert decoded(player["src"], "video/mp4") == MP4


def test_metrics_are_shown_as_on_the_terminal():
    table = table_of(FIGURES, "all of them")
    assert table.caption == "all of them"
    assert table.rows[:2] == (("episodes", "4", ""), ("pitch error, RMS", "0.0211", "rad"))
    terminal = metrics.metric_table(FIGURES).splitlines()
    assert [" ".join(row).split() for row in table.rows] == [line.split() for line in terminal]


def test_numbers_are_on_the_right_and_details_indented():
    header = ("metric", "value", "change", "none", "mixed", "text")
    rows = (
        ("error", "0.021", "+3 %", "-", "1", "yes"),
        ("  of it, FL", "-", "−.5 ± 0.1", "-", "no data", "no"),
    )
    page = Page(Table(header, rows).html())
    number = [False, True, True, True, False, False]
    assert [t.get("class") == "number" for t in page.all("th") if t["scope"] == "col"] == number
    assert [t.get("class") == "number" for t in page.all("td")] == number[1:] * 2
    assert [t.get("class") for t in page.all("th") if t["scope"] == "row"] == [None, "detail"]
    assert "of it, FL" in page.inside("th")


def test_an_empty_table_is_a_header():
    page = Page(table_of({}).html())
    assert page.inside("th") == ["metric", "value", "unit"]
    assert not page.all("td")


def test_a_row_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"row \('a',\) does not fit"):
        Table(("metric", "value"), (("a",),))


@pytest.mark.parametrize("failing", ["figure", "video"])
def test_a_failure_leaves_the_folder_as_it_was(tmp_path, failing):
    path = tmp_path / "made" / "report.html"
    block = (
        Picture(figure(r"$\frac{1}$"), "broken mathematics", "nothing")
        if failing == "figure"
        else Video(tmp_path / "missing.mp4", "no such file")
    )
    sections = [Section("fine", (Text("fine"),)), Section("not", (block,))]
    with pytest.raises((ValueError, FileNotFoundError)):
        write_report(path, "title", "summary", sections, {})
    assert not list(tmp_path.iterdir())
    path.parent.mkdir()
    path.write_text("the old one")
    with pytest.raises((ValueError, FileNotFoundError)):
        write_report(path, "title", "summary", sections, {})
    assert path.read_text() == "the old one"
    assert list(path.parent.iterdir()) == [path]


def test_a_file_name_that_is_no_unicode(tmp_path):
    facts = {"command": b"--out caf\xe9".decode("utf-8", "surrogateescape")}
    path = write_report(tmp_path / "a.html", "título", "é.", [], facts)
    page = Page(path.read_text("utf-8"))
    assert page.inside("h1") == ["título"]
    assert page.inside("dd") == ["--out caf\\udce9"]
