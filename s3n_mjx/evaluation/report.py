"""One self-contained HTML page about a result: sentences, tables, figures and a video.

The page is a single file that opens offline: figures and video lie inside it, it holds no
script and refers to nothing outside. The same content gives the same bytes. For example

    write_report(
        folder / "report.html",
        title="Pitch tracking",
        summary="The pitch follows the command to 0.021 rad RMS.",
        sections=[Section("Figures of merit", (table_of(figures), Picture(fig, "...", "...")))],
        facts={"checkpoint": str(checkpoint.path)},
    )
"""

import base64
import io
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from s3n_mjx.evaluation.metrics import metric_rows
from s3n_mjx.evaluation.plots import DPI
from s3n_mjx.files import written_whole

_CSS_DPI = 96  # of a page's pixels; figures come in `DPI`, so they stay sharp when enlarged
_NUMBER = re.compile(r"[+\-−±]?\.?\d")  # how a cell begins that holds one
_MISSING = "-"  # as in `metrics.metric_table`


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str

    def html(self) -> str:
        """The paragraph as HTML."""
        return f"<p>{escape(self.text)}</p>"


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows.

    A column that holds nothing but numbers (units may follow them, "-" stands for a missing
    one) is aligned to the right. A row whose name starts with a space is shown as a detail of
    the rows above.

    Raises:
        ValueError: a row has more or fewer cells than the header.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"row {row} does not fit the header {self.header}")

    def html(self) -> str:
        """The table as HTML, in a box that scrolls if the page is too narrow for it."""
        columns = [[row[i] for row in self.rows] for i in range(len(self.header))]
        classes = [""] + [' class="number"' if _numeric(c) else "" for c in columns[1:]]
        header = (
            f'<th scope="col"{kind}>{escape(cell)}</th>'
            for cell, kind in zip(self.header, classes, strict=True)
        )
        lines = ['<div class="table"><table>']
        if self.caption:
            lines.append(f"<caption>{escape(self.caption)}</caption>")
        lines += [f"<thead><tr>{''.join(header)}</tr></thead>", "<tbody>"]
        for name, *cells in self.rows:
            detail = ' class="detail"' if name.startswith(" ") else ""
            values = (
                f"<td{kind}>{escape(cell)}</td>"
                for cell, kind in zip(cells, classes[1:], strict=True)
            )
            lines.append(
                f'<tr><th scope="row"{detail}>{escape(name.strip())}</th>{"".join(values)}</tr>'
            )
        lines.append("</tbody></table></div>")
        return "\n".join(lines)


@dataclass(frozen=True)
class Picture:
    """A figure, embedded as PNG at the resolution of `plots.save`.

    Attributes:
        figure: drawn when the report is written.
        caption: shown below it.
        alt: what it shows, for those who cannot see it.
    """

    figure: Figure
    caption: str
    alt: str

    def html(self) -> str:
        """The figure as HTML."""
        # PNG, not SVG: its size is bounded whatever number of samples is drawn, and it looks
        # the same with whatever fonts the reader has.
        buffer = io.BytesIO()
        # Matplotlib would enter its version, which has no part in what is shown.
        self.figure.savefig(buffer, dpi=DPI, format="png", metadata={"Software": None})
        png = buffer.getvalue()
        # From the file's header, since the user's matplotlibrc may crop what is saved.
        width, height = (round(n * _CSS_DPI / DPI) for n in struct.unpack(">II", png[16:24]))
        image = (
            f'<img src="{_data_url("image/png", png)}" alt="{escape(self.alt)}"'
            f' width="{width}" height="{height}">'
        )
        return _figure(f'<div class="card">{image}</div>', self.caption)


@dataclass(frozen=True)
class Video:
    """An mp4, embedded.

    Attributes:
        path: read when the report is written.
        caption: shown below it.
    """

    path: Path
    caption: str

    def html(self) -> str:
        """The video as HTML."""
        source = _data_url("video/mp4", Path(self.path).read_bytes())
        player = (
            f'<video controls loop muted playsinline preload="metadata" src="{source}"'
            f' aria-label="{escape(self.caption)}"></video>'
        )
        return _figure(player, self.caption, kind="video")


Block = Text | Table | Picture | Video


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it."""

    title: str
    blocks: tuple[Block, ...]


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """The same table for the terminal: aligned columns, the first ``left`` of them to the left."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def table_of(metrics: Mapping[str, float], caption: str = "") -> Table:
    """The rows of `metrics.metric_table`, with its labels, units and decimals.

    Args:
        metrics: one a row, in the given order.
        caption: of the table.
    """
    return Table(("metric", "value", "unit"), tuple(metric_rows(metrics)), caption)


def write_report(
    path: Path | str,
    title: str,
    summary: str,
    sections: Sequence[Section],
    facts: Mapping[str, str],
) -> Path:
    """Write the page, whole or not at all; return its path.

    Args:
        path: of the page, "....html".
        title: what the page is about.
        summary: the result in a sentence, right below the title.
        sections: in the order of the page; more than two are listed at its top.
        facts: how the result came about (checkpoint, robot, versions, date, command), listed
            at the end. The page knows nothing else, not even the date.
    """
    path = Path(path)
    # Before the file is begun: drawing and reading are what fails.
    page = _page(title, summary, sections, facts)
    with written_whole(path) as temporary:
        # A file name of undecodable bytes, say in the command, must not cost the report.
        temporary.write_bytes(page.encode("utf-8", "backslashreplace"))
    return path


# --- HTML ---------------------------------------------------------------------------------

_FACTS = "How this was made"

# No script and no request: the page's own policy, which the browser enforces.
_POLICY = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'"

_STYLE = """
:root {
  color-scheme: light;
  --page: #ffffff; --ink: #1b1f24; --quiet: #57606a; --line: #d4dae1; --link: #005f94;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    color-scheme: dark;
    --page: #15181c; --ink: #e4e7ea; --quiet: #a5adb7; --line: #3a424c; --link: #6fbdee;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body {
  max-width: 68rem; margin: 0 auto; padding: 1.5rem 1rem 3rem;
  background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
  overflow-wrap: break-word;
}
h1 { margin: 0 0 0.5rem; font-size: 1.75rem; line-height: 1.25; }
h2 {
  margin: 2.5rem 0 1rem; padding-top: 1rem; border-top: 1px solid var(--line);
  font-size: 1.3rem; line-height: 1.3;
}
p { max-width: 42rem; }
.summary { margin: 0; font-size: 1.15rem; }
a { color: var(--link); }
nav ol { margin: 1.25rem 0 0; padding-left: 1.5rem; }
.table { overflow-x: auto; margin: 1rem 0; }
table { border-spacing: 0; font-variant-numeric: tabular-nums; }
caption { padding-bottom: 0.5rem; text-align: left; color: var(--quiet); font-size: 0.9rem; }
th, td { padding: 0.3rem 1.25rem 0.3rem 0; text-align: left; vertical-align: baseline; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--quiet); font-size: 0.9rem; vertical-align: bottom; }
tbody th, tbody td { border-top: 1px solid var(--line); }
tbody th {
  position: sticky; left: 0; background: var(--page); font-weight: inherit;
}
tbody th.detail { padding-left: 1.25rem; color: var(--quiet); }
th.number, td.number { text-align: right; }
td.number { white-space: nowrap; }
figure { margin: 1.5rem 0; }
.card {
  width: fit-content; max-width: 100%; padding: 0.5rem;
  background: #ffffff; border: 1px solid var(--line); border-radius: 0.4rem;
}
img, video { display: block; max-width: 100%; height: auto; }
video { border-radius: 0.4rem; }
figcaption { max-width: 42rem; margin-top: 0.5rem; color: var(--quiet); font-size: 0.9rem; }
dl { margin: 0; }
dt { color: var(--quiet); font-size: 0.9rem; }
dd { margin: 0 0 0.75rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (min-width: 40rem) {
  body { padding: 3rem 2rem 4rem; }
  dl { display: grid; grid-template-columns: max-content 1fr; gap: 0.5rem 1.5rem; }
  dt { max-width: 14rem; line-height: 1.72; }
  dd { margin: 0; }
}
@media screen and (max-width: 40rem) {
  table { font-size: 0.9rem; }
  th, td { padding-right: 0.75rem; }
  .card { padding: 0; }
}
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav, video { display: none; }
  .video figcaption::before { content: "Only on screen: "; }
  .card { padding: 0; border: 0; }
  .table { overflow: visible; }
  h2, caption { break-after: avoid; }
  figure, tr, dd { break-inside: avoid; }
}
"""


def _numeric(column: Sequence[str]) -> bool:
    values = [cell.strip() for cell in column if cell.strip()]
    return bool(values) and all(v == _MISSING or _NUMBER.match(v) for v in values)


def _data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"


def _figure(content: str, caption: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    below = f"\n<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f"<figure{attribute}>\n{content}{below}\n</figure>"


def _contents(headings: Sequence[str]) -> list[str]:
    items = [f'<li><a href="#s{i}">{escape(h)}</a></li>' for i, h in enumerate(headings, 1)]
    return ['<nav aria-label="contents"><ol>', *items, "</ol></nav>"]


def _definitions(facts: Mapping[str, str]) -> str:
    items = [f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items()]
    return "\n".join(["<dl>", *items, "</dl>"])


def _page(title: str, summary: str, sections: Sequence[Section], facts: Mapping[str, str]) -> str:
    parts = [(s.title, "\n".join(block.html() for block in s.blocks)) for s in sections]
    if facts:
        parts.append((_FACTS, _definitions(facts)))
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        f"<header>\n<h1>{escape(title)}</h1>",
        f'<p class="summary">{escape(summary)}</p>',
    ]
    if len(sections) > 2:
        lines += _contents([heading for heading, _ in parts])
    lines += ["</header>", "<main>"]
    for i, (heading, content) in enumerate(parts, 1):
        lines += [f'<section id="s{i}">\n<h2>{escape(heading)}</h2>', content, "</section>"]
    lines += ["</main>", "</body>", "</html>", ""]
    return "\n".join(lines)
