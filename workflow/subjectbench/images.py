"""Pictures: bytes to RGB and back without surprises, and the byte-stable ZIP that holds them.

Every decoder question (type, orientation, transparency, bit depth, animation, damage, size) is
answered here once, so that encoders, judges and figures see the same pixels. A bad picture is a
:class:`~subjectbench.records.Status` with its reason, never an exception and never a number.
"""

from __future__ import annotations

import io
import re
import shutil
import stat
import unicodedata
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import numpy as np
from PIL import Image, ImageFile, ImageOps

from subjectbench.errors import InputError, suggest
from subjectbench.hashing import sha256 as sha256
from subjectbench.vocabulary import Status

MAX_PIXELS = int(178_956_970 / 2)
"""Most pixels (width x height) accepted by default: where Pillow starts to warn of a bomb."""

BACKGROUND = (255, 255, 255)
"""What transparent pixels are laid over (declared: white)."""

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that are read. A fixed list: what a plug-in of Pillow adds must not change results."""

_EXTENSIONS = {
    ".avif": "AVIF", ".bmp": "BMP", ".gif": "GIF", ".jpg": "JPEG", ".jpeg": "JPEG", ".jpe": "JPEG",
    ".jfif": "JPEG", ".png": "PNG", ".apng": "PNG", ".ppm": "PPM", ".pgm": "PPM", ".pbm": "PPM",
    ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WEBP", ".heic": "HEIC", ".heif": "HEIC",
}  # fmt: skip

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
    (b"%PDF", "PDF"),
    (b"8BPS", "PSD"),
    (b"\x00\x00\x01\x00", "ICO"),
    (b"\x00\x00\x00\x0cjP  ", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\x00\x00\x00\x0cJXL ", "JPEG XL"),
    (b"\xff\x0a", "JPEG XL"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip archive"),
    (b"version https://git-lfs", "Git LFS pointer (the picture itself was not downloaded)"),
)
_HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"}


@dataclass
class Picture:
    """A picture as read.

    Attributes:
        image: RGB, 8 bits per channel, upright, opaque, without metadata; None unless ``OK``.
        status: ``OK`` or why there are no usable pixels.
        details: JSON types only: ``format``, ``mode``, ``width``, ``height`` as stored and, where
            they apply, ``orientation`` (EXIF tag applied), ``frames``, ``extension_mismatch``,
            ``warnings``, and ``reason`` for every status but ``OK``.
    """

    image: Image.Image | None
    status: Status
    details: dict[str, Any] = field(default_factory=dict)


def sniff(data: bytes) -> str | None:
    """Return the type that the first bytes tell (``"PNG"``, ``"HEIC"``, ``"HTML"``), or None."""
    for magic, name in _MAGIC:
        if data.startswith(magic):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[4:8] == b"ftyp":
        size = int.from_bytes(data[:4], "big")
        brands = {data[i : i + 4] for i in (8, *range(16, min(size, 128), 4))}
        if brands & {b"avif", b"avis"}:
            return "AVIF"
        return "HEIC" if brands & _HEIF_BRANDS else "video (MP4)"
    if re.match(rb"P[1-6]\s", data):
        return "PPM"
    head = data[:512].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "HTML"
    if head.startswith(b"<svg") or (head.startswith(b"<?xml") and b"<svg" in head):
        return "SVG"
    return "JSON" if head[:1] in (b"{", b"[") else None


def _ends_early(data: bytes, kind: str | None) -> bool:
    """Whether a file of this type lacks its end: tells "cut" from "damaged"."""
    if kind == "PNG":
        return b"IEND" not in data[-64:]
    if kind == "JPEG":
        return b"\xff\xd9" not in data[-64:]
    if kind == "GIF":
        return not data.rstrip(b"\x00").endswith(b";")
    if kind == "WEBP":
        return int.from_bytes(data[4:8], "little") + 8 > len(data)
    if kind == "BMP":
        return int.from_bytes(data[2:6], "little") > len(data)
    if kind == "TIFF":  # where the directory is; mostly it comes after the pixels
        return int.from_bytes(data[4:8], "little" if data[:1] == b"I" else "big") + 2 > len(data)
    if kind == "AVIF":  # walk the boxes: the last one must end where the file does
        position = 0
        while position + 8 <= len(data):
            size = int.from_bytes(data[position : position + 4], "big")
            if size < 8:  # 0: to the end of the file; 1: 64-bit size, not seen in pictures
                return False
            position += size
        return position != len(data)
    return False


def _flatten(image: Image.Image) -> Image.Image:
    """RGB of any mode; transparency over ``BACKGROUND``.

    Raises:
        ValueError: the pixels have no declared range (float, or 32-bit integers).
    """
    if image.mode.startswith("I"):
        # convert("RGB") would clip at 255: nearly every 16-bit pixel would turn white.
        wide = np.asarray(image).astype(np.int64)
        if wide.size and (wide.min() < 0 or wide.max() > 65535):
            raise ValueError("32-bit integer pixels outside 0..65535: their range is unknown")
        narrow = Image.fromarray(((wide * 255 + 32767) // 65535).astype(np.uint8))
        key = image.info.get("transparency")
        if isinstance(key, int):
            narrow.putalpha(Image.fromarray(np.where(wide == key, 0, 255).astype(np.uint8)))
        image = narrow
    elif image.mode == "F":
        raise ValueError("floating-point pixels: their range is unknown")
    # Palettes and grey or RGB with a transparent colour keep it in info, not in a channel.
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (*BACKGROUND, 255)), image)
    image = image.convert("RGB")
    # A fresh object: the decoded one still carries EXIF, ICC and text that savers write again.
    return Image.frombytes("RGB", image.size, image.tobytes())


def _orientation(image: Image.Image, details: dict[str, Any]) -> Image.Image:
    try:
        tag = image.getexif().get(0x0112)
        if tag not in (None, 1):
            image = ImageOps.exif_transpose(image)
            details["orientation"] = int(tag)
    except Exception as error:
        # Damaged metadata around sound pixels: keep the pixels, tell about the metadata.
        details["exif"] = f"unreadable: {error}"
    return image


def read_picture(
    data: bytes,
    *,
    name: str,
    max_pixels: int = MAX_PIXELS,
    animation: Literal["refuse", "first"] = "refuse",
) -> Picture:
    """Decode a picture completely, or say why not. Never raises for a bad picture.

    The type is told from the bytes. EXIF orientation is applied, transparency is laid over white,
    16-bit is scaled to 8-bit, everything becomes RGB.

    Args:
        data: the file's bytes.
        name: its name; used for the extension check and in ``details["reason"]``.
        max_pixels: more pixels give ``OVERSIZE`` without decoding. Pillow's own limit (twice
            ``MAX_PIXELS``) stays in force above it.
        animation: ``"refuse"`` gives ``ANIMATED`` for more than one frame or page; ``"first"``
            reads the first and records their number. MPO files (JPEGs of phones with a depth or
            gain map appended) are stills.

    Returns:
        A :class:`Picture` with status ``OK``, ``EMPTY``, ``UNREADABLE``, ``TRUNCATED``,
        ``OVERSIZE`` or ``ANIMATED``.
    """
    details: dict[str, Any] = {}

    def bad(status: Status, reason: str) -> Picture:
        return Picture(None, status, {**details, "reason": f"{name}: {reason}"})

    if not data:
        return bad(Status.EMPTY, "zero bytes")
    # With the flag on, Pillow fills what is missing with grey. Imports set it behind our back,
    # so it is switched off at every read and stays off.
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    kind = sniff(data)
    if kind is not None:
        details["format"] = kind
        extension = PurePosixPath(name).suffix.lower()
        if extension in _EXTENSIONS and _EXTENSIONS[extension] != kind:
            details["extension_mismatch"] = f"{extension} holds {kind}"
        if kind not in FORMATS:
            return bad(Status.UNREADABLE, f"this is {kind}; readable: {', '.join(FORMATS)}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # The bomb warning only: the limit itself (an error at twice the warning) stays on.
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            picture = _decode(data, details, bad, max_pixels, animation)
        except Image.DecompressionBombError as error:
            picture = bad(Status.OVERSIZE, str(error))
        except Exception as error:  # decoders raise anything, from SyntaxError to struct.error
            reason = _reason(error, kind)
            cut = _ends_early(data, kind) or (kind in FORMATS and "truncated" in str(error).lower())
            picture = bad(Status.TRUNCATED if cut else Status.UNREADABLE, reason)
    if caught:
        picture.details["warnings"] = sorted({str(w.message) for w in caught})
    return picture


def _reason(error: Exception, kind: str | None) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        if kind is None:
            return "no known picture format"
        return f"starts like {kind} but its header cannot be read"
    return f"{kind or 'picture'}: {error or type(error).__name__}"


def _decode(
    data: bytes,
    details: dict[str, Any],
    bad: Callable[[Status, str], Picture],
    max_pixels: int,
    animation: str,
) -> Picture:
    # Only listed decoders: EPS would start Ghostscript, and plug-ins differ between machines.
    kind = details.get("format")
    formats = FORMATS if kind is None else (kind,)
    with Image.open(io.BytesIO(data), formats=formats) as image:
        details.setdefault("format", image.format)
        details.update(mode=image.mode, width=image.width, height=image.height)
        if image.width * image.height > max_pixels:
            size = f"{image.width}x{image.height}"
            return bad(Status.OVERSIZE, f"{size} is more than {max_pixels} pixels")
        if image.format == "MPO":
            details["format"] = "MPO"
        elif getattr(image, "is_animated", False):
            details["frames"] = int(getattr(image, "n_frames", 2))
            if animation == "refuse":
                return bad(Status.ANIMATED, f"{details['frames']} frames where one is expected")
            image.seek(0)
        image.load()
        details["mode"] = image.mode
        return Picture(_flatten(_orientation(image, details)), Status.OK, details)


def is_blank(image: Image.Image) -> bool:
    """Whether the picture has no pixels or one colour everywhere (a failed generation)."""
    pixels = np.asarray(image)
    return pixels.size == 0 or bool((pixels == pixels[0, 0]).all())


def from_floats(array: np.ndarray) -> Picture:
    """Turn a generator's output into a picture, or say that it is none.

    Args:
        array: height x width x 3, floating point, in [0, 1] (0.001 of overshoot is clipped).

    Returns:
        ``OK``, or ``INVALID_IMAGE`` when any value is not finite or out of range, or when all
        pixels are equal: NaN cast to bytes is a black picture that would be scored.

    Raises:
        ValueError: another shape, or integers (0-255 pixels are not floats).
    """
    array = np.asarray(array)
    if array.ndim != 3 or array.shape[2] != 3 or not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"expected HxWx3 floats in [0, 1], got {array.dtype} {array.shape}")
    wide = array.astype(np.float64)  # a float16 product with 255 loses its last bits
    details: dict[str, Any] = {"width": array.shape[1], "height": array.shape[0]}
    finite = np.isfinite(wide)
    if wide.size == 0:
        reason = "no pixels"
    elif not finite.all():
        reason = f"{int((~finite).sum())} of {wide.size} values are not finite"
    elif wide.min() < -1e-3 or wide.max() > 1 + 1e-3:
        reason = f"values from {wide.min():.4g} to {wide.max():.4g}, expected 0 to 1"
    else:
        image = Image.fromarray(np.rint(wide.clip(0, 1) * 255).astype(np.uint8))
        if not is_blank(image):
            return Picture(image, Status.OK, details)
        reason = "all pixels are equal"
    return Picture(None, Status.INVALID_IMAGE, {**details, "reason": reason})


def encode_png(image: Image.Image) -> bytes:
    """Encode an RGB picture as PNG without metadata: the same pixels give the same bytes.

    The bytes also depend on the compressor inside Pillow, which the environment pins.

    Raises:
        ValueError: the mode is not RGB.
    """
    if image.mode != "RGB":
        raise ValueError(f"expected an RGB picture, got {image.mode}")
    plain = Image.frombytes("RGB", image.size, image.tobytes())  # drops info: ICC, EXIF, text, dpi
    buffer = io.BytesIO()
    plain.save(buffer, "PNG", compress_level=6, optimize=False)
    return buffer.getvalue()


# --- ZIP -----------------------------------------------------------------------------------------

_DATE = (1980, 1, 1, 0, 0, 0)
CHUNK = 1 << 20
"""Bytes of a large member that are in memory at once."""


def _name_fault(name: str) -> str | None:
    if not name or name.endswith("/"):
        return "is empty or a folder"
    if "\\" in name or any(unicodedata.category(c) == "Cc" for c in name):
        return "has a backslash or a control character"
    if name.startswith("/") or re.match(r"[A-Za-z]:", name):
        return "is absolute"
    if any(part in ("", ".", "..") for part in name.split("/")):
        return "has an empty, '.' or '..' part"
    return None


def check_names(names: Iterable[str], where: object) -> None:
    """Refuse names that would leave their folder, or be one file on some systems.

    Raises:
        InputError: a name is empty, absolute, has ``..`` or odd characters, equals another when
            case is ignored, or is the folder of another.
    """
    seen: dict[str, str] = {}
    for name in names:
        fault = _name_fault(name)
        if fault:
            raise InputError(where, f"member name {name!r} {fault}", "use plain relative names")
        # Case and accent spellings fold to one file on macOS and Windows.
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())
        if folded in seen:
            raise InputError(
                where, f"members '{seen[folded]}' and '{name}' are one file on some systems",
                "give each its own name",
            )  # fmt: skip
        seen[folded] = name
    for folded, name in seen.items():
        for parent in PurePosixPath(folded).parents:
            if str(parent) in seen:
                raise InputError(where, f"member '{seen[str(parent)]}' is a file and the folder "
                                 f"of '{name}'", "rename one of them")  # fmt: skip


def write_zip(path: Path, members: Mapping[str, bytes | Path]) -> None:
    """Write a ZIP whose bytes depend on the members only: stored, sorted, dated 1980-01-01.

    Members are fetched one at a time, so a lazy mapping (a :class:`ZipReader`, say) keeps memory
    low; a path stands for the bytes of that file, which are copied in pieces. Zip64 is used where
    sizes need it. The file is not renamed into place: the store does.

    Raises:
        InputError: a name is empty, absolute, has ``..``, or equals another when case is ignored.
    """
    names = sorted(members)
    check_names(names, path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        for name in names:
            info = zipfile.ZipInfo(name, _DATE)
            info.create_system = 3  # otherwise it tells Windows from the rest
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            info.compress_type = zipfile.ZIP_STORED
            member = members[name]
            if isinstance(member, bytes):
                archive.writestr(info, member)
                continue
            info.file_size = member.stat().st_size  # Zip64 must be known before the first byte
            with member.open("rb") as source, archive.open(info, "w") as out:
                shutil.copyfileobj(source, out, CHUNK)


class ZipReader(Mapping[str, bytes]):
    """The members of a ZIP by name, read on demand and checked against their CRC.

    Use it as a context manager, or close it. Iteration follows sorted names.

    Raises:
        InputError: at opening, if the file is missing or no ZIP, or holds unsafe names, doubles,
            links or encrypted members; at reading, if a name is unknown or the bytes are damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        try:
            self._zip = zipfile.ZipFile(self.path)
        except FileNotFoundError:
            raise InputError(path, "no such file") from None
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(
                path, f"not a readable ZIP: {error}", "make or fetch it again"
            ) from None
        try:
            infos = [i for i in self._zip.infolist() if not i.is_dir()]
            check_names([i.filename for i in infos], path)
            for info in infos:
                # A link would be read as a small text file that holds its target's name.
                if stat.S_ISLNK(info.external_attr >> 16):
                    raise InputError(path, f"member '{info.filename}' is a link", "pack the file")
                if info.flag_bits & 1:
                    raise InputError(path, f"member '{info.filename}' is encrypted")
        except BaseException:
            self._zip.close()
            raise
        self._infos = {i.filename: i for i in sorted(infos, key=lambda i: i.filename)}

    def __getitem__(self, name: str) -> bytes:
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """Read a large member in pieces; faults as for ``reader[name]``, at the latest at its end.

        Raises:
            InputError: no such member, or its bytes are damaged.
        """
        if name not in self._infos:
            raise InputError(self.path, f"no member '{name}'", suggest(name, self._infos))
        try:
            with self._zip.open(self._infos[name]) as data:
                yield from iter(lambda: data.read(CHUNK), b"")
        except Exception as error:  # CRC, cut file, unknown compression, bad local header
            raise InputError(
                self.path, f"member '{name}' is damaged: {error}", "make or fetch it again"
            ) from error

    def size(self, name: str) -> int:
        """Bytes of a member as its header says; reading it never returns more."""
        return self._infos[name].file_size

    def read(self, name: str) -> bytes:
        """Return a member's bytes; the same as ``reader[name]``."""
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._infos

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def __enter__(self) -> ZipReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._zip.close()


def read_zip(path: Path) -> ZipReader:
    """Open a ZIP for reading; see :class:`ZipReader`."""
    return ZipReader(path)
