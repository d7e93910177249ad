"""The page of `vitrail fidelity`: one image a row, one run a column, then the figures."""

from __future__ import annotations

from html import escape

from PIL import Image

from vitrail.audit.map_fidelity import Fidelity, FidelityReport
from vitrail.explain.map_similarity import is_constant
from vitrail.report.pages.page_elements import (
    draw_heat,
    draw_photo,
    format_number,
    render_page,
    store_photo,
)

COLUMNS = {
    "mse": "MSE",
    "psnr": "PSNR, dB",
    "ssim": "SSIM",
    "global_ssim": "SSIM, global",
    "rank_correlation": "rank correlation",
    "top_overlap": "top 10 % shared",
}
_STYLE = (
    "td.see{width:132px;min-width:96px}td small{display:block}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}"
)


def describe_defenses(run: Fidelity) -> str:
    """What stands between this run and the baseline: the defenses and their energy."""
    energy = "" if run.energy is None else f", energy {run.energy:g}"
    return f"{' + '.join(run.defenses)}{energy}"


def render_fidelity_page(report: FidelityReport, shown: bool, pictures: int = 8) -> str:
    """One HTML document; photographs are in it only if they may be `shown`, maps always are."""
    lead = (
        f'<p class="soft">Grad-CAM of the true class on the same {report.images} test images, '
        f"beside {escape(report.baseline)}</p>"
    )
    body = [_render_metrics(report), _render_pictures(report, shown, pictures), _render_meaning()]
    return render_page("What the defense did to the explanations", lead, body, _STYLE)


def _render_metrics(report: FidelityReport) -> str:
    heads = "".join(
        f'<th scope="col">{name}</th>'
        for name in ("accuracy", "same answer", *COLUMNS.values(), "deletion", "parts", "failures")
    )
    rows = [_render_row(run) for run in report.runs]
    base = (
        f'<tr><th scope="row">{escape(report.baseline)}</th>'
        f'<td class="n">{format_number(report.accuracy)}</td>'
        f'<td class="n" colspan="{len(COLUMNS) + 3}">the baseline</td>'
        f'<td class="n">{report.failures}</td></tr>'
    )
    return (
        f'<section><h2>Figures</h2><div class="wide"><table><thead><tr><th></th>{heads}</tr>'
        f"</thead><tbody>{base}{''.join(rows)}</tbody></table></div></section>"
    )


def _render_row(run: Fidelity) -> str:
    parts = []
    if run.prototype_drift is not None:
        parts.append(f"drift {format_number(run.prototype_drift)}")
    if run.subspace_angle is not None:
        parts.append(f"{format_number(run.subspace_angle, 1)}°")
    values = [
        format_number(run.accuracy),
        format_number(run.agreement),
        *(
            _format_optional(run.figures.get(name), 1 if name in ("mse", "psnr") else 3)
            for name in COLUMNS
        ),
        format_number(run.deletion),
        " ".join(parts) or "none",
        str(run.failures),
    ]
    cells = "".join(f'<td class="n">{value}</td>' for value in values)
    notes = "".join(f"<small>{escape(note)}</small>" for note in run.notes)
    name = f"{escape(describe_defenses(run))}<small>{escape(run.run)}</small>{notes}"
    return f'<tr><th scope="row">{name}</th>{cells}</tr>'


def _format_optional(value: float | None, places: int) -> str:
    return "undefined" if value is None else format_number(value, places)


def choose_rows(count: int, pictures: int) -> list[int]:
    """Some of `count` images, spread evenly over them and so over their classes."""
    return sorted({round(i * (count - 1) / max(1, pictures - 1)) for i in range(pictures)})


def _render_pictures(report: FidelityReport, shown: bool, pictures: int) -> str:
    titles = ["no defense", *(describe_defenses(run) for run in report.runs)]
    if not shown:
        return (
            '<section><h2>Pictures</h2><p class="note">The images belong to the sites: add '
            "--with-images to show them to somebody who may see them.</p></section>"
        )
    rows, stored = [], []
    for at in choose_rows(len(report.labels), pictures):
        pixels = report.pixels[at]
        size = (pixels.shape[0], pixels.shape[1])
        picture = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])
        stored.append(store_photo(f"image{at}", picture, size))
        label = report.classes[report.labels[at]]
        cells = [f'<td class="see">{draw_photo(f"image{at}", size, label)}</td>']
        for title, view in zip(titles, report.views, strict=True):
            answer = report.classes[int(view.predicted[at])]
            map_ = view.maps[at]
            over = "" if is_constant(map_) else draw_heat(map_, (0, 0, size[1], size[0]))
            alt = f"Grad-CAM of {label}, {title}"
            blank = "<small>constant: no map</small>" if is_constant(map_) else ""
            cells.append(
                f'<td class="see">{draw_photo(f"image{at}", size, alt, heat=over)}'
                f"<small>says {escape(answer)}</small>{blank}</td>"
            )
        rows.append(f'<tr><th scope="row">{escape(label)}</th>{"".join(cells)}</tr>')
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in ("image", *titles))
    return (
        f'<section><h2>Pictures</h2>{"".join(stored)}<div class="wide"><table><thead><tr>'
        f"<th></th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></section>"
    )


def _render_meaning() -> str:
    return (
        "<section><h2>How to read this</h2><p>MSE, PSNR and SSIM are of maps scaled, image by "
        "image, from 0 at the least to 255 at the greatest value; SSIM is the mean over windows, "
        "the global one has a single window. Two maps that have nothing to do with each other "
        "share 10 % of their strongest pixels and have a rank correlation near 0. Deletion is the "
        "area under the true class's probability while the marked regions are taken away, of this "
        "run minus the baseline: above 0, the maps mark less of what the model needs. A failure "
        "is an image whose map is constant in one of the two runs; it is in no mean. Two runs "
        "that differ in the seed alone also differ: compare with that before blaming a defense."
        "</p></section>"
    )
