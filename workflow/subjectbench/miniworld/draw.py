"""The renderer: a subject and a scene to a picture, with no randomness at all."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter, ImageOps

from subjectbench.miniworld.scenes import Scene
from subjectbench.miniworld.subjects import COLOURS, Subject

RGB = tuple[int, int, int]

_OVERSAMPLE = 3
_TILE = 0.70  # side of the subject's tile as a share of the picture
_DARK: RGB = (40, 38, 48)
_LIGHT: RGB = (250, 250, 245)
_SKIN: RGB = (240, 200, 168)

# Shapes: (role, primitive, numbers) in the unit square, drawn in order. Roles: body (the main
# colour with its pattern), accent (the second colour), dark, light, skin. Primitives: e ellipse
# box, r rounded box + radius, p polygon, o ring box + width. ``_ANCHORS`` is where the marking
# goes: centre and radius.
_Part = tuple[str, str, tuple[float, ...]]
_SHAPES: dict[str, tuple[_Part, ...]] = {
    "mug": (
        ("accent", "o", (0.56, 0.30, 0.96, 0.74, 0.09)),
        ("body", "r", (0.12, 0.18, 0.72, 0.92, 0.10)),
        ("accent", "e", (0.12, 0.10, 0.72, 0.27)),
        ("dark", "e", (0.18, 0.135, 0.66, 0.235)),
    ),
    "ball": (
        ("body", "e", (0.08, 0.08, 0.92, 0.92)),
        ("accent", "e", (0.36, 0.08, 0.64, 0.22)),
        ("accent", "e", (0.36, 0.80, 0.64, 0.92)),
    ),
    "bottle": (
        ("body", "r", (0.40, 0.12, 0.60, 0.50, 0.03)),
        ("body", "r", (0.27, 0.36, 0.73, 0.97, 0.13)),
        ("accent", "r", (0.38, 0.03, 0.62, 0.16, 0.03)),
    ),
    "lamp": (
        ("accent", "r", (0.46, 0.50, 0.54, 0.88, 0.0)),
        ("accent", "e", (0.26, 0.83, 0.74, 0.97)),
        ("body", "p", (0.34, 0.06, 0.66, 0.06, 0.90, 0.58, 0.10, 0.58)),
    ),
    "book": (
        ("light", "r", (0.20, 0.80, 0.86, 0.94, 0.02)),
        ("body", "r", (0.16, 0.06, 0.86, 0.86, 0.04)),
        ("accent", "r", (0.12, 0.06, 0.26, 0.94, 0.05)),
    ),
    "shoe": (
        (
            "body",
            "p",
            (0.08, 0.22, 0.40, 0.22, 0.50, 0.46, 0.80, 0.55, 0.96, 0.70, 0.96, 0.80, 0.06, 0.80),
        ),
        ("accent", "r", (0.03, 0.76, 0.98, 0.88, 0.05)),
        ("accent", "p", (0.06, 0.18, 0.42, 0.18, 0.43, 0.28, 0.07, 0.28)),
        ("light", "p", (0.48, 0.38, 0.58, 0.34, 0.60, 0.38, 0.50, 0.43)),
        ("light", "p", (0.57, 0.45, 0.66, 0.40, 0.68, 0.44, 0.60, 0.49)),
    ),
    "car": (
        ("body", "p", (0.20, 0.50, 0.33, 0.24, 0.68, 0.24, 0.83, 0.50)),
        ("body", "r", (0.03, 0.46, 0.97, 0.76, 0.10)),
        ("light", "p", (0.28, 0.48, 0.37, 0.30, 0.48, 0.30, 0.48, 0.48)),
        ("light", "p", (0.53, 0.48, 0.53, 0.30, 0.65, 0.30, 0.74, 0.48)),
        ("dark", "e", (0.13, 0.63, 0.37, 0.87)),
        ("dark", "e", (0.63, 0.63, 0.87, 0.87)),
        ("accent", "e", (0.19, 0.69, 0.31, 0.81)),
        ("accent", "e", (0.69, 0.69, 0.81, 0.81)),
    ),
    "house": (
        ("dark", "r", (0.68, 0.12, 0.80, 0.40, 0.0)),
        ("body", "r", (0.14, 0.42, 0.86, 0.95, 0.01)),
        ("accent", "p", (0.02, 0.48, 0.50, 0.06, 0.98, 0.48)),
        ("dark", "r", (0.22, 0.62, 0.40, 0.95, 0.02)),
        ("light", "e", (0.43, 0.22, 0.57, 0.36)),
    ),
    "robot": (
        ("accent", "r", (0.06, 0.44, 0.20, 0.78, 0.06)),
        ("accent", "r", (0.80, 0.44, 0.94, 0.78, 0.06)),
        ("accent", "r", (0.30, 0.80, 0.44, 0.98, 0.02)),
        ("accent", "r", (0.56, 0.80, 0.70, 0.98, 0.02)),
        ("accent", "r", (0.47, 0.00, 0.53, 0.12, 0.0)),
        ("body", "r", (0.28, 0.09, 0.72, 0.39, 0.05)),
        ("body", "r", (0.19, 0.42, 0.81, 0.84, 0.06)),
        ("light", "e", (0.34, 0.16, 0.46, 0.28)),
        ("light", "e", (0.54, 0.16, 0.66, 0.28)),
        ("dark", "r", (0.38, 0.31, 0.62, 0.35, 0.01)),
    ),
    "fish": (
        ("accent", "p", (0.66, 0.50, 0.98, 0.20, 0.90, 0.50, 0.98, 0.82)),
        ("accent", "p", (0.30, 0.36, 0.46, 0.08, 0.62, 0.34)),
        ("body", "e", (0.04, 0.24, 0.78, 0.78)),
        ("light", "e", (0.12, 0.38, 0.26, 0.52)),
        ("dark", "e", (0.155, 0.415, 0.225, 0.485)),
    ),
    "bird": (
        ("accent", "p", (0.30, 0.56, 0.00, 0.36, 0.03, 0.68)),
        ("dark", "r", (0.40, 0.76, 0.45, 0.98, 0.0)),
        ("dark", "r", (0.56, 0.76, 0.61, 0.98, 0.0)),
        ("accent", "p", (0.84, 0.22, 1.00, 0.31, 0.84, 0.38)),
        ("body", "e", (0.12, 0.34, 0.80, 0.84)),
        ("body", "e", (0.54, 0.08, 0.90, 0.44)),
        ("dark", "e", (0.72, 0.19, 0.80, 0.27)),
    ),
    "cat": (
        ("accent", "p", (0.66, 0.90, 0.90, 0.78, 0.88, 0.46, 0.98, 0.46, 1.00, 0.84, 0.72, 0.98)),
        ("body", "e", (0.20, 0.40, 0.80, 0.98)),
        ("body", "p", (0.22, 0.34, 0.22, 0.02, 0.46, 0.16)),
        ("body", "p", (0.78, 0.34, 0.78, 0.02, 0.54, 0.16)),
        ("body", "e", (0.20, 0.10, 0.80, 0.52)),
        ("accent", "p", (0.26, 0.22, 0.26, 0.09, 0.37, 0.16)),
        ("accent", "p", (0.74, 0.22, 0.74, 0.09, 0.63, 0.16)),
        ("light", "e", (0.31, 0.23, 0.44, 0.35)),
        ("light", "e", (0.56, 0.23, 0.69, 0.35)),
        ("dark", "e", (0.36, 0.25, 0.40, 0.34)),
        ("dark", "e", (0.60, 0.25, 0.64, 0.34)),
        ("dark", "p", (0.46, 0.38, 0.54, 0.38, 0.50, 0.44)),
    ),
    "turtle": (
        ("accent", "e", (0.70, 0.34, 1.00, 0.62)),
        ("accent", "e", (0.16, 0.62, 0.36, 0.92)),
        ("accent", "e", (0.56, 0.62, 0.76, 0.92)),
        ("accent", "p", (0.12, 0.60, 0.00, 0.74, 0.14, 0.72)),
        ("body", "e", (0.06, 0.18, 0.82, 0.80)),
        ("dark", "e", (0.86, 0.41, 0.92, 0.47)),
    ),
    "face": (
        ("accent", "e", (0.08, 0.02, 0.92, 0.74)),
        ("body", "e", (0.16, 0.14, 0.84, 0.98)),
        ("light", "e", (0.26, 0.44, 0.44, 0.56)),
        ("light", "e", (0.56, 0.44, 0.74, 0.56)),
        ("dark", "e", (0.31, 0.45, 0.39, 0.55)),
        ("dark", "e", (0.61, 0.45, 0.69, 0.55)),
        ("dark", "p", (0.34, 0.76, 0.66, 0.76, 0.58, 0.85, 0.42, 0.85)),
    ),
    "person": (
        ("accent", "r", (0.33, 0.66, 0.47, 0.98, 0.03)),
        ("accent", "r", (0.53, 0.66, 0.67, 0.98, 0.03)),
        ("skin", "e", (0.06, 0.52, 0.20, 0.66)),
        ("skin", "e", (0.80, 0.52, 0.94, 0.66)),
        ("body", "p", (0.30, 0.32, 0.24, 0.32, 0.06, 0.54, 0.17, 0.62, 0.32, 0.48)),
        ("body", "p", (0.70, 0.32, 0.76, 0.32, 0.94, 0.54, 0.83, 0.62, 0.68, 0.48)),
        ("body", "r", (0.25, 0.30, 0.75, 0.74, 0.08)),
        ("skin", "e", (0.35, 0.02, 0.65, 0.32)),
        ("dark", "e", (0.42, 0.15, 0.47, 0.20)),
        ("dark", "e", (0.53, 0.15, 0.58, 0.20)),
    ),
}
_ANCHORS: dict[str, tuple[float, float, float]] = {
    "mug": (0.42, 0.59, 0.21),
    "ball": (0.50, 0.51, 0.24),
    "bottle": (0.50, 0.68, 0.17),
    "lamp": (0.50, 0.34, 0.17),
    "book": (0.56, 0.44, 0.21),
    "shoe": (0.28, 0.52, 0.16),
    "car": (0.50, 0.61, 0.12),
    "house": (0.64, 0.70, 0.16),
    "robot": (0.50, 0.63, 0.17),
    "fish": (0.47, 0.53, 0.18),
    "bird": (0.44, 0.59, 0.18),
    "cat": (0.50, 0.74, 0.18),
    "turtle": (0.44, 0.49, 0.20),
    "face": (0.50, 0.29, 0.12),
    "person": (0.50, 0.52, 0.17),
}


def shade(colour: RGB, factor: float) -> RGB:
    """Darken (``factor`` < 1) or lighten (> 1) a colour, keeping it in range."""
    if factor <= 1:
        r, g, b = (round(c * factor) for c in colour)
    else:
        r, g, b = (round(255 - (255 - c) * (2 - factor)) for c in colour)
    return r, g, b


def _star(cx: float, cy: float, radius: float, points: int = 5) -> list[tuple[float, float]]:
    return [
        (
            cx + radius * (1 if i % 2 == 0 else 0.45) * math.sin(math.pi * i / points),
            cy - radius * (1 if i % 2 == 0 else 0.45) * math.cos(math.pi * i / points),
        )
        for i in range(2 * points)
    ]


def _primitive(pen: Any, kind: str, n: tuple[float, ...], side: int, fill: Any, grow: int) -> None:
    """Draw one primitive, ``grow`` pixels larger on each side."""
    s = side - 1
    if kind == "p":
        points = [(n[i] * s, n[i + 1] * s) for i in range(0, len(n), 2)]
        pen.polygon(points, fill=fill)
        if grow:
            pen.line([*points, points[0], points[1]], fill=fill, width=2 * grow, joint="curve")
        return
    box = (n[0] * s - grow, n[1] * s - grow, n[2] * s + grow, n[3] * s + grow)
    if kind == "e":
        pen.ellipse(box, fill=fill)
    elif kind == "r":
        pen.rounded_rectangle(box, radius=n[4] * s + grow, fill=fill)
    else:
        pen.ellipse(box, outline=fill, width=round(n[4] * s) + 2 * grow)


@lru_cache(maxsize=256)
def _texture_mask(texture: str, side: int) -> Image.Image:
    """Mask of the pattern's second colour, ``side`` square, mode L."""
    yy, xx = np.mgrid[0:side, 0:side] / side
    if texture == "striped":
        on = (xx * 6 + yy * 1.5) % 1 < 0.42
    elif texture == "dotted":
        row = np.floor(yy * 6)
        on = ((xx * 6 + row % 2 * 0.5) % 1 - 0.5) ** 2 + (yy * 6 % 1 - 0.5) ** 2 < 0.085
    elif texture == "checked":
        on = (np.floor(xx * 7) + np.floor(yy * 7)) % 2 < 1
    elif texture == "zigzag":
        on = (yy * 6 + np.abs(xx * 5 % 1 - 0.5) * 1.4) % 1 < 0.42
    else:
        on = np.zeros_like(xx, bool)
    return Image.fromarray((on * 255).astype(np.uint8))


@lru_cache(maxsize=8)
def _light(side: int) -> tuple[Image.Image, Image.Image]:
    """Light from the top left: an RGB multiplier and a highlight mask."""
    yy, xx = np.mgrid[0:side, 0:side] / side
    fall = np.clip(1.12 - 0.75 * ((xx - 0.32) ** 2 + (yy - 0.25) ** 2) ** 0.5, 0.45, 1.0)
    spot = np.exp(-(((xx - 0.33) / 0.12) ** 2 + ((yy - 0.27) / 0.10) ** 2)) * 0.6
    grey = Image.fromarray((fall * 255).astype(np.uint8))
    return Image.merge("RGB", (grey,) * 3), Image.fromarray((spot * 255).astype(np.uint8))


def _mark(
    pen: ImageDraw.ImageDraw, marking: str, cx: float, cy: float, r: float, fill: RGB
) -> None:
    if marking == "star":
        pen.polygon(_star(cx, cy, r * 1.1), fill=fill)
    elif marking == "cross":
        w = r * 0.34
        pen.rectangle((cx - r, cy - w, cx + r, cy + w), fill=fill)
        pen.rectangle((cx - w, cy - r, cx + w, cy + r), fill=fill)
    elif marking == "ring":
        pen.ellipse((cx - r, cy - r, cx + r, cy + r), outline=fill, width=max(2, round(r * 0.42)))
    elif marking == "heart":
        h = r * 0.52
        pen.ellipse((cx - r, cy - r * 0.9, cx - r + 2 * h, cy - r * 0.9 + 2 * h), fill=fill)
        pen.ellipse((cx + r - 2 * h, cy - r * 0.9, cx + r, cy - r * 0.9 + 2 * h), fill=fill)
        pen.polygon(
            [(cx - r * 0.95, cy - r * 0.2), (cx + r * 0.95, cy - r * 0.2), (cx, cy + r)], fill=fill
        )
    elif marking == "triangle":
        pen.polygon([(cx, cy - r), (cx + r, cy + r * 0.8), (cx - r, cy + r * 0.8)], fill=fill)
    elif marking == "letter":
        w = max(2, round(r * 0.42))
        pen.line([(cx - r * 0.6, cy - r), (cx - r * 0.6, cy + r)], fill=fill, width=w)
        pen.line(
            [(cx + r * 0.75, cy - r), (cx - r * 0.5, cy), (cx + r * 0.75, cy + r)],
            fill=fill,
            width=w,
        )


def _tile(subject: Subject, scene: Scene, side: int) -> Image.Image:
    """Draw the subject alone: RGBA, ``side`` square, transparent around it."""
    colour_name = scene.new_colour or subject.colour
    texture = scene.new_texture or subject.texture
    colour = COLOURS[colour_name]
    one_coloured = subject.second_colour == subject.colour
    # A shade keeps the parts of a one-coloured subject apart; black can only be made lighter.
    tone = shade(colour, 1.3) if sum(colour) < 200 else shade(colour, 0.62)
    second = tone if one_coloured else COLOURS[subject.second_colour]
    if second == colour:
        second = tone
    flat = subject.domain != "Photorealistic"
    fills = {"body": colour, "accent": second, "dark": _DARK, "light": _LIGHT, "skin": _SKIN}
    parts = _SHAPES[subject.shape]

    image = Image.new("RGB", (side, side), _DARK)
    alpha = Image.new("L", (side, side), 0)
    pen, alpha_pen = ImageDraw.Draw(image), ImageDraw.Draw(alpha)
    grow = 3 if flat else 0
    surface: Image.Image | None = None
    if texture != "plain":
        surface = Image.new("RGB", (side, side), colour)
        surface.paste(second, mask=_texture_mask(texture, side))
    for role, kind, numbers in parts:
        _primitive(alpha_pen, kind, numbers, side, 255, grow)
        if flat and kind != "o" and role != "body":
            _primitive(pen, kind, numbers, side, _DARK, 2)
        _primitive(pen, kind, numbers, side, fills[role], 0)
    if surface is not None:
        # The pattern covers the body only, so the parts drawn after it must be cut out again.
        body = Image.new("L", (side, side), 0)
        body_pen = ImageDraw.Draw(body)
        for role, kind, numbers in parts:
            edge = 2 if flat and kind != "o" and role != "body" else 0
            _primitive(body_pen, kind, numbers, side, 255 if role == "body" else 0, edge)
        image.paste(surface, mask=body)
    if subject.marking != "none":
        cx, cy, r = (v * side for v in _ANCHORS[subject.shape])
        fill = COLOURS[subject.marking_colour]
        # A disc of the main colour keeps a marking readable on a busy pattern.
        if texture != "plain":
            pen.ellipse((cx - r * 1.3, cy - r * 1.3, cx + r * 1.3, cy + r * 1.3), fill=colour)
        _mark(pen, subject.marking, cx, cy, r, fill)
        if texture != "plain" and not one_coloured:
            # The hard subjects repeat their marking small, a second scale of detail.
            for dx in (-1.55, 1.55):
                _mark(pen, subject.marking, cx + dx * r, cy + 0.9 * r, r * 0.32, fill)
    if not flat:
        multiplier, spot = _light(side)
        image = ImageChops.multiply(image, multiplier)
        image.paste((255, 255, 255), mask=spot)
    image.putalpha(alpha)
    return image


# ---------------------------------------------------------------- backgrounds


def _gradient(
    side: int, top: RGB, bottom: RGB, start: float = 0.0, end: float = 1.0
) -> Image.Image:
    t = np.clip((np.arange(side) / side - start) / (end - start), 0, 1)[:, None, None]
    rows = np.array(top) * (1 - t) + np.array(bottom) * t
    return Image.fromarray(np.broadcast_to(rows, (side, side, 3)).round().astype(np.uint8).copy())


def _tree(pen: ImageDraw.ImageDraw, x: float, base: float, h: float, leaf: RGB) -> None:
    pen.rectangle((x - h * 0.06, base - h * 0.35, x + h * 0.06, base), fill=(96, 62, 36))
    for k, w in ((0.25, 0.30), (0.50, 0.24), (0.75, 0.16)):
        y = base - h * k
        pen.polygon([(x - h * w, y), (x + h * w, y), (x, y - h * 0.38)], fill=leaf)


@lru_cache(maxsize=64)
def _background(name: str, side: int) -> Image.Image:
    """Draw a background, RGB, ``side`` square. Callers must copy it."""
    w = side - 1
    rng = np.random.default_rng([len(name), *name.encode()])
    dots = rng.random((60, 3))

    def ground(image: Image.Image, y: float, top: RGB, bottom: RGB) -> ImageDraw.ImageDraw:
        image.paste(
            _gradient(side, top, bottom, y, 1.0).crop((0, int(y * side), side, side)),
            (0, int(y * side)),
        )
        return ImageDraw.Draw(image)

    if name == "beach":
        image = _gradient(side, (120, 196, 246), (205, 236, 252), 0, 0.4)
        pen = ground(image, 0.40, (28, 130, 190), (60, 178, 206))
        pen = ground(image, 0.60, (246, 222, 160), (226, 190, 120))
        pen.ellipse((w * 0.76, w * 0.05, w * 0.94, w * 0.23), fill=(255, 240, 140))
        pen.line([(0, w * 0.60), (w, w * 0.60)], fill=(250, 252, 255), width=side // 40)
    elif name == "forest":
        image = _gradient(side, (156, 190, 150), (70, 120, 76))
        pen = ground(image, 0.66, (58, 92, 44), (40, 66, 30))
        for i in range(9):
            leaf = (24 + int(dots[i, 0] * 30), 80 + int(dots[i, 1] * 40), 44)
            _tree(pen, w * (i + 0.5) / 9, w * (0.70 + 0.06 * (i % 2)), w * 0.62, leaf)
    elif name == "snow":
        image = _gradient(side, (170, 190, 214), (214, 226, 240), 0, 0.6)
        pen = ground(image, 0.60, (250, 252, 255), (222, 232, 246))
        pen.polygon([(0, w * 0.6), (w * 0.25, w * 0.25), (w * 0.5, w * 0.6)], fill=(132, 150, 180))
        pen.polygon([(w * 0.4, w * 0.6), (w * 0.75, w * 0.15), (w, w * 0.6)], fill=(116, 136, 170))
        pen.polygon([(w * 0.66, w * 0.27), (w * 0.75, w * 0.15), (w * 0.82, w * 0.27)], fill=_LIGHT)
        for x, y, r in dots:
            d = 1.5 + 2.5 * r
            pen.ellipse((x * w - d, y * w - d, x * w + d, y * w + d), fill=(255, 255, 255))
    elif name == "desert":
        image = _gradient(side, (250, 176, 92), (254, 224, 160), 0, 0.5)
        pen = ground(image, 0.52, (222, 150, 74), (190, 112, 50))
        pen.polygon([(0, w * 0.62), (w * 0.3, w * 0.42), (w * 0.7, w * 0.62)], fill=(206, 130, 60))
        for x in (0.10, 0.88):
            pen.rounded_rectangle((w * x, w * 0.34, w * (x + 0.05), w * 0.7), 5, fill=(50, 120, 60))
            pen.rectangle((w * (x - 0.05), w * 0.45, w * (x + 0.1), w * 0.49), fill=(50, 120, 60))
    elif name == "city":
        image = _gradient(side, (150, 176, 206), (214, 220, 228))
        pen = ImageDraw.Draw(image)
        for i in range(7):
            x, top = w * i / 7, w * (0.12 + 0.36 * dots[i, 0])
            tone = 90 + int(60 * dots[i, 1])
            pen.rectangle((x, top, x + w / 7.6, w * 0.74), fill=(tone, tone, tone + 14))
            for y in np.arange(top + w * 0.03, w * 0.7, w * 0.08):
                for k in (0.025, 0.08):
                    box = (x + w * k, y, x + w * (k + 0.03), y + w * 0.04)
                    pen.rectangle(box, fill=(250, 232, 150))
        pen = ground(image, 0.74, (84, 84, 92), (64, 64, 72))
        for k in range(5):
            pen.rectangle(
                (w * (0.04 + k * 0.2), w * 0.86, w * (0.14 + k * 0.2), w * 0.89), fill=_LIGHT
            )
    elif name == "kitchen":
        image = Image.new("RGB", (side, side), (214, 238, 226))
        pen = ImageDraw.Draw(image)
        for k in range(1, 8):
            pen.line([(w * k / 8, 0), (w * k / 8, w * 0.68)], fill=(166, 204, 190), width=2)
            pen.line([(0, w * k / 8), (w, w * k / 8)], fill=(166, 204, 190), width=2)
        pen = ground(image, 0.68, (198, 140, 84), (156, 100, 54))
        pen.rectangle((w * 0.02, w * 0.06, w * 0.30, w * 0.36), fill=(250, 250, 250))
        pen.rectangle((w * 0.05, w * 0.09, w * 0.27, w * 0.33), fill=(140, 204, 250))
        pen.rectangle((w * 0.72, w * 0.06, w * 0.98, w * 0.30), fill=(150, 96, 54))
    elif name == "space":
        image = _gradient(side, (8, 8, 30), (34, 16, 66))
        pen = ImageDraw.Draw(image)
        for x, y, r in dots:
            d = 0.8 + 2.2 * r
            pen.ellipse((x * w - d, y * w - d, x * w + d, y * w + d), fill=(255, 250, 220))
        pen.ellipse((w * 0.70, w * 0.04, w * 0.96, w * 0.30), fill=(230, 120, 80))
        pen.ellipse((w * 0.62, w * 0.14, w * 1.04, w * 0.20), outline=(250, 210, 150), width=3)
    elif name == "sea":
        image = _gradient(side, (30, 150, 200), (6, 44, 110))
        pen = ImageDraw.Draw(image)
        for k in (0.1, 0.4, 0.7):
            pen.polygon(
                [(w * k, 0), (w * (k + 0.12), 0), (w * (k - 0.1), w), (w * (k - 0.3), w)],
                fill=(34, 128, 186),
            )
        pen = ground(image, 0.86, (170, 160, 110), (130, 120, 84))
        for x, y, r in dots[:14]:
            d = 2 + 5 * r
            pen.ellipse(
                (x * w - d, y * w - d, x * w + d, y * w + d), outline=(190, 232, 250), width=2
            )
        for x in (0.06, 0.16, 0.86, 0.94):
            pen.line(
                [
                    (w * x, w),
                    (w * (x + 0.03), w * 0.85),
                    (w * (x - 0.02), w * 0.7),
                    (w * x, w * 0.55),
                ],
                fill=(30, 140, 70),
                width=side // 32,
            )
    elif name == "sunset":
        image = _gradient(side, (92, 40, 120), (255, 140, 60), 0, 0.62)
        pen = ImageDraw.Draw(image)
        pen.ellipse((w * 0.30, w * 0.34, w * 0.70, w * 0.74), fill=(255, 220, 90))
        pen = ground(image, 0.64, (92, 42, 82), (44, 20, 54))
        for k in range(4):
            y = w * (0.68 + 0.07 * k)
            pen.line([(w * (0.34 + k * 0.03), y), (w * (0.66 - k * 0.03), y)], (255, 190, 90), 3)
    elif name == "meadow":
        image = _gradient(side, (110, 190, 250), (210, 236, 254), 0, 0.5)
        pen = ground(image, 0.52, (140, 206, 84), (84, 164, 56))
        for x, y in ((0.16, 0.14), (0.72, 0.22)):
            for k in (-0.07, 0.0, 0.07):
                cx, cy = w * (x + k), w * y
                pen.ellipse(
                    (cx - w * 0.07, cy - w * 0.05, cx + w * 0.07, cy + w * 0.05), fill=_LIGHT
                )
        for i, (x, y, r) in enumerate(dots[:26]):
            cy, d = w * (0.58 + 0.4 * y), 2 + 2.5 * r
            fill = ((250, 240, 90), (250, 120, 160), (255, 255, 255))[i % 3]
            pen.ellipse((x * w - d, cy - d, x * w + d, cy + d), fill=fill)
    else:  # studio
        image = _gradient(side, (236, 236, 240), (222, 222, 228), 0, 0.7)
        pen = ground(image, 0.72, (212, 212, 218), (232, 232, 236))
    return image


# ---------------------------------------------------------------- other things in the picture


def _companion(pen: ImageDraw.ImageDraw, name: str, w: int) -> None:
    """Draw a companion standing at the left edge."""
    x, base = w * 0.15, w * 0.93
    if name == "tree":
        pen.rectangle((x - w * 0.03, w * 0.60, x + w * 0.03, base), fill=(104, 66, 36))
        for dx, y, r in ((-0.07, 0.52, 0.10), (0.07, 0.52, 0.10), (0.0, 0.40, 0.12)):
            cx = x + w * dx
            pen.ellipse((cx - w * r, w * (y - r), cx + w * r, w * (y + r)), fill=(38, 134, 52))
    elif name == "flower":
        pen.line([(x, base), (x, w * 0.6)], fill=(40, 140, 50), width=w // 34)
        pen.ellipse((x, w * 0.74, x + w * 0.11, w * 0.80), fill=(40, 140, 50))
        for k in range(6):
            cx = x + w * 0.085 * math.cos(k * math.pi / 3)
            cy = w * 0.55 + w * 0.085 * math.sin(k * math.pi / 3)
            r = w * 0.055
            pen.ellipse((cx - r, cy - r, cx + r, cy + r), fill=(240, 70, 130))
        r = w * 0.05
        pen.ellipse((x - r, w * 0.55 - r, x + r, w * 0.55 + r), fill=(255, 220, 60))
    elif name == "box":
        pen.rectangle((w * 0.01, w * 0.66, w * 0.27, base), fill=(196, 150, 96))
        pen.polygon(
            [
                (w * 0.01, w * 0.66),
                (w * 0.07, w * 0.58),
                (w * 0.33, w * 0.58),
                (w * 0.27, w * 0.66),
            ],
            fill=(222, 182, 130),
        )
        pen.polygon(
            [(w * 0.27, w * 0.66), (w * 0.33, w * 0.58), (w * 0.33, w * 0.85), (w * 0.27, base)],
            fill=(160, 116, 70),
        )
        pen.rectangle((w * 0.12, w * 0.66, w * 0.16, base), fill=(236, 214, 170))
    elif name == "chair":
        wood = (150, 84, 40)
        pen.rectangle((w * 0.02, w * 0.40, w * 0.06, base), fill=wood)
        pen.rectangle((w * 0.02, w * 0.66, w * 0.28, w * 0.72), fill=wood)
        pen.rectangle((w * 0.24, w * 0.66, w * 0.28, base), fill=wood)
        for y in (0.42, 0.52):
            pen.rectangle((w * 0.02, w * y, w * 0.10, w * (y + 0.05)), fill=wood)
    elif name == "umbrella":
        pen.line([(x, w * 0.36), (x, base)], fill=(70, 70, 80), width=w // 42)
        box = (x - w * 0.18, w * 0.30, x + w * 0.18, w * 0.66)
        for k, fill in enumerate(((220, 50, 60), _LIGHT, (220, 50, 60), _LIGHT)):
            pen.pieslice(box, 180 + 45 * k, 225 + 45 * k, fill=fill)


def _occlude(pen: ImageDraw.ImageDraw, name: str, w: int) -> None:
    if name == "fence":
        for k in range(6):
            x = w * (0.02 + k * 0.17)
            pen.polygon(
                [
                    (x, w),
                    (x, w * 0.60),
                    (x + w * 0.04, w * 0.54),
                    (x + w * 0.08, w * 0.60),
                    (x + w * 0.08, w),
                ],
                fill=(250, 250, 246),
                outline=(150, 150, 150),
            )
        for y in (0.66, 0.86):
            pen.rectangle(
                (0, w * y, w, w * (y + 0.045)), fill=(236, 236, 230), outline=(150, 150, 150)
            )
    elif name == "grass":
        for k in range(34):
            x = w * k / 33
            top = w * (0.58 + 0.16 * ((k * 7) % 5) / 5)
            fill = (34 + (k * 13) % 40, 120 + (k * 29) % 50, 40)
            lean = w * 0.03 * ((k % 3) - 1)
            pen.polygon([(x - w * 0.025, w), (x + w * 0.025, w), (x + lean, top)], fill=fill)
    elif name == "curtain":
        for k in range(7):
            fill = (150, 24, 60) if k % 2 else (190, 44, 84)
            pen.rectangle((w * (0.60 + k * 0.06), 0, w * (0.66 + k * 0.06), w), fill=fill)
        pen.rectangle((0, 0, w, w * 0.06), fill=(210, 170, 70))


def _tiny_houses(pen: ImageDraw.ImageDraw, w: int) -> None:
    for k in range(9):
        x, top = w * k / 9, w * (0.84 + 0.03 * (k % 3))
        wall = ((236, 214, 180), (210, 226, 236), (240, 196, 190))[k % 3]
        pen.rectangle((x + w * 0.01, top, x + w * 0.10, w), fill=wall)
        pen.polygon(
            [(x, top), (x + w * 0.055, top - w * 0.06), (x + w * 0.11, top)], fill=(170, 60, 50)
        )
        pen.rectangle(
            (x + w * 0.04, top + w * 0.04, x + w * 0.07, top + w * 0.07), fill=(60, 60, 90)
        )


def _behind(
    pen: ImageDraw.ImageDraw, scene: Scene, w: int, cx: float, cy: float, half: float
) -> None:
    """Draw what imagination puts behind the subject."""
    if scene.imagination == "wings":
        for side in (-1, 1):
            for k, spread in enumerate((1.55, 1.4, 1.2)):
                tip = (cx + side * half * spread, cy - half * (0.75 - 0.45 * k))
                pen.polygon(
                    [
                        (cx + side * half * 0.2, cy - half * 0.3),
                        tip,
                        (cx + side * half * 0.3, cy + half * 0.4),
                    ],
                    fill=(255, 255, 255),
                    outline=(120, 130, 160),
                )
    elif scene.imagination == "balloons":
        spots = ((-0.28, (230, 60, 60)), (0.0, (60, 120, 230)), (0.28, (250, 210, 60)))
        for dx, fill in spots:
            x, y, r = cx + w * dx, w * (0.13 + abs(dx) * 0.15), w * 0.105
            pen.line([(x, y), (cx, cy)], fill=(60, 60, 60), width=2)
            pen.ellipse((x - r, y - r * 1.2, x + r, y + r * 1.2), fill=fill, outline=_DARK, width=2)
    elif scene.imagination == "rainbow":
        hues = (
            (220, 40, 40),
            (245, 140, 30),
            (250, 220, 50),
            (60, 170, 70),
            (50, 90, 210),
            (130, 60, 180),
        )
        for k, fill in enumerate(hues):
            r = w * (0.56 - 0.035 * k)
            box = (w * 0.5 - r, w * 0.58 - r, w * 0.5 + r, w * 0.58 + r)
            pen.arc(box, 180, 360, fill=fill, width=round(w * 0.037))


def _before(canvas: Image.Image, scene: Scene, w: int, cx: float, cy: float, half: float) -> None:
    """Draw what imagination puts on or before the subject."""
    pen = ImageDraw.Draw(canvas)
    if scene.imagination == "crown":
        top, r = cy - half * 0.92, half * 0.5
        pen.polygon(
            [
                (cx - r, top + r * 0.5),
                (cx - r, top - r * 0.5),
                (cx - r * 0.5, top),
                (cx, top - r * 0.7),
                (cx + r * 0.5, top),
                (cx + r, top - r * 0.5),
                (cx + r, top + r * 0.5),
            ],
            fill=(255, 206, 40),
            outline=(150, 100, 10),
            width=2,
        )
        for dx in (-0.6, 0.0, 0.6):
            x, d = cx + dx * r, r * 0.13
            pen.ellipse((x - d, top + r * 0.15 - d, x + d, top + r * 0.15 + d), fill=(220, 30, 60))
    elif scene.imagination == "giant":
        _tiny_houses(pen, w)
    elif scene.imagination == "bubbles":
        r = half * 1.25
        box = (cx - r, cy - r, cx + r, cy + r)
        veil = Image.new("L", canvas.size, 0)
        ImageDraw.Draw(veil).ellipse(box, fill=56)
        canvas.paste((170, 225, 255), mask=veil)
        pen.ellipse(box, outline=(120, 200, 250), width=max(3, w // 48))
        pen.arc(
            (cx - r * 0.8, cy - r * 0.8, cx + r * 0.8, cy + r * 0.8), 195, 250, (255, 255, 255), 5
        )


# ---------------------------------------------------------------- styles


def _stylise(image: Image.Image, style: str) -> Image.Image:
    """Apply a style to the finished picture (RGB in, RGB out, same size)."""
    size = image.size
    if style == "sketch":
        grey = ImageOps.grayscale(image)
        soft = ImageOps.invert(grey).filter(ImageFilter.GaussianBlur(2))
        lines = np.asarray(grey, np.float64) * 255 / np.maximum(256.0 - np.asarray(soft), 1)
        ink = np.clip(lines, 0, 255) * 0.8 + np.asarray(grey, np.float64) * 0.2
        return Image.fromarray(ink.astype(np.uint8)).convert("RGB")
    if style == "mosaic":
        cells = max(8, size[0] * 3 // 8)
        small = image.resize((cells, cells), Image.Resampling.BOX)
        pixels = np.asarray(small.resize(size, Image.Resampling.NEAREST)).copy()
        edge = np.flatnonzero(np.diff(np.arange(size[0]) * cells // size[0]))
        pixels[edge], pixels[:, edge] = pixels[edge] * 0.72, pixels[:, edge] * 0.72
        return Image.fromarray(pixels)
    if style == "sepia":
        grey = ImageOps.grayscale(image)
        return ImageOps.colorize(grey, (50, 28, 10), (255, 236, 196), (168, 122, 76))
    if style == "neon":
        edges = np.asarray(image.filter(ImageFilter.FIND_EDGES), np.float64)
        edges[[0, -1]], edges[:, [0, -1]] = 0, 0
        tint = np.asarray(image, np.float64)
        tint = tint / np.maximum(tint.max(axis=2, keepdims=True), 1)
        glow = edges.max(axis=2, keepdims=True) * (0.25 + tint**2) * 1.5
        return Image.fromarray(np.clip(glow + np.array([14, 6, 30]), 0, 255).astype(np.uint8))
    if style == "night":
        dark = np.asarray(image, np.float64) * np.array([0.30, 0.36, 0.60])
        return Image.fromarray(dark.astype(np.uint8))
    if style == "poster":
        return ImageOps.posterize(ImageEnhance.Color(image).enhance(2.2), 1).point(
            lambda v: 40 if v < 128 else 235
        )
    return image


_VIEW = {  # horizontal and vertical size, turn in degrees
    "front": (1.0, 1.0, 0.0),
    "above": (1.0, 0.55, 0.0),
    "side": (0.5, 1.0, 0.0),
    "close": (1.6, 1.6, 0.0),
    "far": (0.45, 0.45, 0.0),
    "tilted": (1.0, 1.0, 40.0),
    "flipped": (1.0, 1.0, 180.0),
}


def draw(subject: Subject, scene: Scene, size: int = 64) -> Image.Image:
    """Draw a picture.

    Args:
        size: side in pixels.

    Returns:
        RGB, ``size`` square; the same arguments give the same bytes with the same Pillow.
    """
    side = size * _OVERSAMPLE
    w = side - 1
    canvas = _background(scene.background, side).copy()
    pen = ImageDraw.Draw(canvas)
    wide, high, turn = _VIEW[scene.view]
    scale = scene.scale
    if scene.companion != "none":
        scale *= 0.82
    if scene.imagination in ("balloons", "crown", "bubbles", "wings"):
        scale *= 0.82
    tile_side = round(side * _TILE)
    cx, cy = scene.x * side, scene.y * side
    if scene.companion != "none":
        cx += side * 0.13
    if scene.imagination in ("balloons", "crown"):
        cy += side * 0.10
    half = tile_side * scale * max(wide, high) / 2

    _behind(pen, scene, w, cx, cy, half)
    floating = scene.background in ("space", "sea") or scene.imagination in ("balloons", "bubbles")
    if not floating and scene.view != "above":
        rx, ry = tile_side * scale * wide * 0.42, tile_side * scale * 0.06
        y = cy + tile_side * scale * high * 0.49
        box = (round(cx - rx), round(y - ry), round(cx + rx), round(y + ry))
        shadow = Image.new("L", (side, side), 0)
        ImageDraw.Draw(shadow).ellipse(box, fill=90)
        if subject.domain == "Photorealistic":
            shadow = shadow.filter(ImageFilter.BoxBlur(side // 64))
        canvas.paste((20, 20, 30), mask=shadow)
    _companion(pen, scene.companion, w)

    tile = _tile(subject, scene, tile_side)
    target = (max(1, round(tile_side * scale * wide)), max(1, round(tile_side * scale * high)))
    if target != tile.size:
        tile = tile.resize(target, Image.Resampling.BILINEAR)
    angle = turn + scene.rotation
    if angle:
        tile = tile.rotate(angle, Image.Resampling.BILINEAR, expand=True)
    canvas.paste(tile, (round(cx - tile.width / 2), round(cy - tile.height / 2)), tile)
    _before(canvas, scene, w, cx, cy, half)
    _occlude(ImageDraw.Draw(canvas), scene.occluder, w)
    return _stylise(canvas.resize((size, size), Image.Resampling.LANCZOS), scene.style)
