"""The page of `vitrail fidelity`: one image a row, one run a column, then the figures."""

from __future__ import annotations

from vitrail.audit.map_fidelity import Fidelity, FidelityReport
from vitrail.explain.map_similarity import is_constant
from vitrail.report.document_page import render_page
from vitrail.report.html import Html, el
from vitrail.report.pages.page_elements import (
    draw_heat,
    draw_photo,
    format_number,
    image_from_array,
    render_rows,
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


def describe_defenses(run: Fidelity) -> str:
    """What stands between this run and the baseline: the defenses and their energy."""
    energy = "" if run.energy is None else f", energy {run.energy:g}"
    return f"{' + '.join(run.defenses)}{energy}"


def render_fidelity_page(report: FidelityReport, shown: bool, pictures: int = 8) -> str:
    """One HTML document; photographs are in it only if they may be `shown`, maps always are."""
    about = f"Grad-CAM of the true class on the same {report.images} test images"
    lead = el("p", f"{about}, beside {report.baseline}", class_="soft")
    body = [
        el("section", el("h2", "Figures"), _render_metrics(report)),
        el("section", el("h2", "Pictures"), *_render_pictures(report, shown, pictures)),
        el("section", el("h2", "How to read this"), el("p", _MEANING)),
    ]
    return render_page("What the defense did to the explanations", lead, body)


def _render_metrics(report: FidelityReport) -> Html:
    heads = ("run", "accuracy", "same answer", *COLUMNS.values(), "deletion", "parts", "failures")
    base = el(
        "tr",
        el("th", report.baseline, scope="row"),
        el("td", format_number(report.accuracy), class_="number"),
        el("td", "the baseline", class_="number", colspan=len(COLUMNS) + 3),
        el("td", report.failures, class_="number"),
    )
    rows = [_render_row(run) for run in report.runs]
    return render_rows(heads, [base, *rows], "Figures", "dense")


def _render_row(run: Fidelity) -> Html:
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
    cells = [el("td", value, class_="number") for value in values]
    notes = [el("small", note) for note in (run.run, *run.notes)]
    return el("tr", el("th", describe_defenses(run), *notes, scope="row"), *cells)


def _format_optional(value: float | None, places: int) -> str:
    return "undefined" if value is None else format_number(value, places)


def choose_rows(count: int, pictures: int) -> list[int]:
    """Some of `count` images, spread evenly over them and so over their classes."""
    return sorted({round(i * (count - 1) / max(1, pictures - 1)) for i in range(pictures)})


def _render_pictures(report: FidelityReport, shown: bool, pictures: int) -> list[Html]:
    titles = ["no defense", *(describe_defenses(run) for run in report.runs)]
    if not shown:
        sentence = "The images belong to the sites: add --with-images to show them to somebody"
        return [el("p", f"{sentence} who may see them.", class_="note")]
    rows, stored = [], []
    for at in choose_rows(len(report.labels), pictures):
        pixels = report.pixels[at]
        name, size = f"image{at}", (pixels.shape[0], pixels.shape[1])
        stored.append(store_photo(name, image_from_array(pixels), size))
        label = report.classes[report.labels[at]]
        cells = [el("td", draw_photo(name, size, label), class_="see")]
        for title, view in zip(titles, report.views, strict=True):
            map_ = view.maps[at]
            blank = el("small", "constant: no map") if is_constant(map_) else None
            over = None if blank else draw_heat(map_, (0, 0, size[1], size[0]))
            drawn = draw_photo(name, size, f"Grad-CAM of {label}, {title}", heat=over)
            answer = el("small", f"says {report.classes[int(view.predicted[at])]}")
            cells.append(el("td", drawn, answer, blank, class_="see"))
        rows.append(el("tr", el("th", label, scope="row"), *cells))
    return [*stored, render_rows(("class", "image", *titles), rows, "Pictures", "")]


_MEANING = (
    "MSE, PSNR and SSIM are of maps scaled, image by image, from 0 at the least to 255 at the "
    "greatest value; SSIM is the mean over windows, the global one has a single window. Two maps "
    "that have nothing to do with each other share 10 % of their strongest pixels and have a rank "
    "correlation near 0. Deletion is the area under the true class's probability while the marked "
    "regions are taken away, of this run minus the baseline: above 0, the maps mark less of what "
    "the model needs. A failure is an image whose map is constant in one of the two runs; it is in "
    "no mean. Two runs that differ in the seed alone also differ: compare with that before blaming "
    "a defense."
)
