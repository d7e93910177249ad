"""A drawing as PNG, drawn by Pillow from the same shapes."""

from __future__ import annotations

import io
import itertools
import math
from collections.abc import Iterator, Sequence

from PIL import Image, ImageColor, ImageDraw
from PIL.PngImagePlugin import PngInfo

from vitrail.report.charts.drawing import Drawing, Mark, Path, Photo, Point, Text, compute_outline
from vitrail.report.charts.fonts import choose_font
from vitrail.report.charts.palette import get_light_color

_SCALE = 2  # pixels for each unit of a drawing
_FINE = 2  # drawn so many times larger, then brought down: smooth edges
_UNIT = _SCALE * _FINE
_ANCHOR = {"start": "lm", "middle": "mm", "end": "rm"}
Color = tuple[int, int, int]


def render_png(drawing: Drawing) -> bytes:
    """The picture at twice its size on the page, on white."""
    size = (max(1, round(drawing.width * _UNIT)), max(1, round(drawing.height * _UNIT)))
    sheet = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(sheet)
    for shape in drawing.shapes:
        if isinstance(shape, Text):
            if shape.min_zoom <= 1:  # else for zoomed charts only
                _draw_text(sheet, pen, shape)
        elif isinstance(shape, Mark):
            _draw_mark(sheet, pen, shape)
        elif isinstance(shape, Photo):
            _draw_photo(sheet, shape)
        else:
            _draw_path(sheet, pen, shape)
    final = (max(1, round(drawing.width * _SCALE)), max(1, round(drawing.height * _SCALE)))
    buffer, about = io.BytesIO(), PngInfo()
    about.add_text("Software", "vitrail")
    sheet.resize(final, Image.Resampling.BOX).save(buffer, "PNG", pnginfo=about, optimize=True)
    return buffer.getvalue()


def _get_color(role: str) -> Color:
    red, green, blue = ImageColor.getrgb(get_light_color(role))[:3]
    return red, green, blue


def _scale(points: Sequence[Point]) -> list[tuple[float, float]]:
    return [(x * _UNIT, y * _UNIT) for x, y in points]


def _draw_path(sheet: Image.Image, pen: ImageDraw.ImageDraw, path: Path) -> None:
    points = _scale(path.points)
    if path.fill is not None:
        _fill(sheet, pen, points, _get_color(path.fill), path.alpha)
        points = [*points, points[0]]
    if path.stroke is None:
        return
    width = max(1, round(path.width * _UNIT))
    color = _get_color(path.stroke)
    if path.alpha < 1:
        _stroke_faint(sheet, points, color, width, path.alpha)
        return
    dash = [d * _UNIT for d in path.dash]
    for piece in _cut_dashes(points, dash) if dash else (points,):
        pen.line(piece, color, width, joint="curve")


def _fill(
    sheet: Image.Image,
    pen: ImageDraw.ImageDraw,
    points: Sequence[Point],
    color: Color,
    alpha: float,
) -> None:
    """An area; a faint one is laid over what is there."""
    if alpha >= 1:
        pen.polygon([(x, y) for x, y in points], fill=color)
        return
    corner, size = _find_extent(points, 1)
    mask = Image.new("L", size)
    moved = [(x - corner[0], y - corner[1]) for x, y in points]
    ImageDraw.Draw(mask).polygon(moved, fill=round(255 * alpha))
    sheet.paste(color, corner, mask)


def _stroke_faint(
    sheet: Image.Image, points: Sequence[Point], color: Color, width: int, alpha: float
) -> None:
    corner, size = _find_extent(points, width + 1)
    mask = Image.new("L", size)
    moved = [(x - corner[0], y - corner[1]) for x, y in points]
    ImageDraw.Draw(mask).line(moved, round(255 * alpha), width, joint="curve")
    sheet.paste(color, corner, mask)


def _find_extent(points: Sequence[Point], room: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The upper left corner of some points, and the size of what holds them."""
    xs, ys = zip(*points, strict=True)
    left, top = math.floor(min(xs)) - room, math.floor(min(ys)) - room
    right, bottom = math.ceil(max(xs)) + room, math.ceil(max(ys)) + room
    return (left, top), (max(1, right - left), max(1, bottom - top))


def _cut_dashes(points: Sequence[Point], dash: Sequence[float]) -> Iterator[list[Point]]:
    """A line in pieces, drawn and left out in turn."""
    at, left, piece = 0, dash[0], [points[0]]
    for a, b in itertools.pairwise(points):
        length, done = math.dist(a, b), 0.0
        while length - done > left:
            done += left
            share = done / length
            cut = (a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1]))
            if at % 2 == 0:
                yield [*piece, cut]
            at += 1
            left, piece = dash[at % len(dash)], [cut]
        left -= length - done
        piece.append(b)
    if at % 2 == 0 and len(piece) > 1:
        yield piece


def _draw_mark(sheet: Image.Image, pen: ImageDraw.ImageDraw, mark: Mark) -> None:
    if mark.alpha == 0:
        return
    color = _get_color(mark.role)
    if mark.sign in ("circle", "ring"):
        (x, y), r = mark.at, mark.radius
        place = [(x - r) * _UNIT, (y - r) * _UNIT, (x + r) * _UNIT, (y + r) * _UNIT]
        if mark.sign == "ring":
            pen.ellipse(place, outline=color, width=2 * _UNIT)
        elif mark.alpha >= 1:
            pen.ellipse(place, fill=color)
        else:
            corner, size = _find_extent([(place[0], place[1]), (place[2], place[3])], 1)
            mask = Image.new("L", size)
            inside = (place[0] - corner[0], place[1] - corner[1],
                      place[2] - corner[0], place[3] - corner[1])  # fmt: skip
            ImageDraw.Draw(mask).ellipse(inside, fill=round(255 * mark.alpha))
            sheet.paste(color, corner, mask)
    else:
        _fill(sheet, pen, _scale(compute_outline(mark)), color, mark.alpha)


def _draw_photo(sheet: Image.Image, photo: Photo) -> None:
    size = (max(1, round(photo.width * _UNIT)), max(1, round(photo.height * _UNIT)))
    how = Image.Resampling.LANCZOS if photo.smooth else Image.Resampling.NEAREST
    corner = (round(photo.at[0] * _UNIT), round(photo.at[1] * _UNIT))
    has_mask = photo.image.mode in ("RGBA", "LA")
    drawn = photo.image.convert("RGBA" if has_mask else "RGB").resize(size, how)
    if has_mask:
        sheet.paste(drawn.convert("RGB"), corner, drawn.getchannel("A"))
    else:
        sheet.paste(drawn, corner)


def _draw_text(sheet: Image.Image, pen: ImageDraw.ImageDraw, text: Text) -> None:
    words, font = choose_font(" ".join(text.text.split()), round(text.size * _UNIT), text.bold)
    if not words:
        return
    x, y = text.at[0] * _UNIT, text.at[1] * _UNIT
    color, anchor = _get_color(text.role), _ANCHOR[text.anchor]
    if not text.turn:
        pen.text((x, y), words, color, font, anchor=anchor)
        return
    room = math.ceil(font.getlength(words)) + 2 * round(text.size * _UNIT)
    mask = Image.new("L", (2 * room, 2 * room))
    ImageDraw.Draw(mask).text((room, room), words, 255, font, anchor=anchor)
    mask = mask.rotate(text.turn, Image.Resampling.BICUBIC)
    sheet.paste(color, (round(x) - room, round(y) - room), mask)
