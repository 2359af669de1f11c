"""NumPy arrays and scalars, torch tensors and PIL images as plain parts and bytes; never a pickle.

None of the three is imported before a value of theirs shows up.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import re
import sys
from collections.abc import Callable
from typing import Any

from lakeshore.core.errors import MissingExtra

from .leaves import (
    ARRAY,
    ATOMS,
    IMAGE,
    LEAVES,
    SCALAR,
    TENSOR,
    TEXT_SCALAR,
    TUPLE,
    CannotTravel,
    Mark,
    class_of,
)

_DTYPE = re.compile(r"[<>|=][?biufcmMSUV]\d*(\[[0-9A-Za-zμ/]+\])?")
_BUFFERS = frozenset("?biufc")  # dtype kinds that Python's buffer protocol knows
_TORCH_DTYPES = frozenset(
    f"torch.{name}"
    for name in (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
    )
)
_PIXEL_BYTES = {
    "1": 0,
    "L": 1,
    "P": 1,
    "LA": 2,
    "La": 2,
    "PA": 2,
    **dict.fromkeys(["I;16", "I;16L", "I;16B", "I;16N"], 2),
    **dict.fromkeys(["RGB", "YCbCr", "LAB", "HSV"], 3),
    **dict.fromkeys(["RGBA", "RGBa", "RGBX", "CMYK", "I", "F"], 4),
}


def write(value: Any, kind: type) -> list[object] | None:
    """The wire form of an array, scalar, tensor or image; None for anything else.

    Raises: CannotTravel for one that holds objects, has no data, or is of a subclass.
    """
    if (array := _loaded("numpy", "ndarray")) is not None:
        if kind is array:
            return _write_array(value)
        if issubclass(kind, _loaded("numpy", "generic")):
            return _write_scalar(value)
        if issubclass(kind, array):
            raise CannotTravel(f"is a {kind.__name__}, which can't travel: pass numpy.asarray(x) instead")
    if (tensor := _loaded("torch", "Tensor")) is not None and issubclass(kind, tensor):
        if kind is tensor:
            return _write_tensor(value, parameter=False)
        if kind is _loaded("torch.nn.parameter", "Parameter"):
            return _write_tensor(value, parameter=True)
        raise CannotTravel(
            f"is a {kind.__name__}, which can't travel: pass x.as_subclass(torch.Tensor) instead"
        )
    if (image := _loaded("PIL.Image", "Image")) is not None and issubclass(kind, image):
        return _write_image(value)
    return None


def _loaded(module: str, name: str) -> Any:
    found = sys.modules.get(module)
    return None if found is None else vars(found).get(name)


def _need(module: str, what: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtra(f"this value holds {what}, and {module} can't be imported: {package}") from error


def _write_dtype(dtype: Any) -> object:
    """A dtype as text, or with its parts where it is structured."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return [_write_dtype(base), list(shape)]
    if dtype.names is None:
        if not _DTYPE.fullmatch(dtype.str) or sys.modules["numpy"].dtype(dtype.str) != dtype:
            raise CannotTravel(f"has dtype {dtype.name}, which can't travel: pass x.astype of a plain dtype")
        return dtype.str
    fields = [dtype.fields[name] for name in dtype.names]
    titles = [field[2] if len(field) > 2 else None for field in fields]
    if any(title is not None and type(title) is not str for title in titles):
        raise CannotTravel("has a dtype with field titles that are not text: leave them out")
    return {
        "names": list(dtype.names),
        "formats": [_write_dtype(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "titles": titles,
        "itemsize": dtype.itemsize,
        "align": dtype.isalignedstruct,
    }


def _read_dtype(np: Any, form: Any) -> Any:
    if isinstance(form, str):
        if not _DTYPE.fullmatch(form):
            raise ValueError("not a dtype that travels")
        return np.dtype(form)
    if isinstance(form, list):
        base, shape = form  # pyright: ignore[reportUnknownVariableType]
        return np.dtype((_read_dtype(np, base), tuple(shape)))  # pyright: ignore[reportUnknownArgumentType]
    parts = {**form, "formats": [_read_dtype(np, part) for part in form["formats"]]}
    if all(title is None for title in parts["titles"]):
        del parts["titles"]
    return np.dtype(parts, align=parts.pop("align"))


def _bytes_of(value: Any) -> object:
    if value.dtype.kind in _BUFFERS and value.dtype.names is None and value.flags.c_contiguous and value.size:
        return memoryview(value)  # packed at once, so the one copy is enough
    return value.tobytes()


def _checked_dtype(value: Any) -> object:
    if value.dtype.hasobject:
        raise CannotTravel("holds Python objects (dtype object): pass a list, or x.astype of a plain dtype")
    return _write_dtype(value.dtype)


def _write_array(value: Any) -> list[object]:
    return [ARRAY.ext, _checked_dtype(value), list(value.shape), _bytes_of(value)]


def _write_scalar(value: Any) -> list[object]:
    kind = value.dtype.kind
    if kind == "U":  # as text, for dtypes drop NULs at the end
        return [TEXT_SCALAR.ext, str.encode(value, "utf-8", "surrogatepass"), True]
    if kind == "S":
        return [TEXT_SCALAR.ext, bytes(value), False]
    return [SCALAR.ext, _checked_dtype(value), value.tobytes()]


def _numpy() -> Any:
    return _need("numpy", "a NumPy array", "pip install numpy")


def _is_shape(shape: Any) -> bool:
    return class_of(shape) is list and all(type(n) is int and n >= 0 for n in shape)


def _read_array(items: list[Any]) -> Any:
    form, shape, data = items
    if not _is_shape(shape) or type(data) is not bytes:
        raise ValueError("not an array that travels")
    np = _numpy()
    dtype = _read_dtype(np, form)
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError("an array whose shape and bytes disagree")
    if not data:
        return np.zeros(shape, dtype)
    return np.ndarray(tuple(shape), dtype, buffer=data).copy()


def _read_scalar(items: list[Any]) -> object:
    return _read_array([items[0], [], items[1]])[()]


def _read_text_scalar(items: list[Any]) -> object:
    data, is_text = items
    return _numpy().str_(data.decode("utf-8", "surrogatepass")) if is_text else _numpy().bytes_(data)


def _write_tensor(value: Any, *, parameter: bool) -> list[object]:
    torch = sys.modules["torch"]
    name = str(value.dtype)
    if value.layout is not torch.strided or value.is_nested or value.device.type == "meta":
        raise CannotTravel("is a tensor without plain data: pass x.to_dense(), or its parts")
    if name not in _TORCH_DTYPES:
        raise CannotTravel(f"is a tensor of {name}, which can't travel: pass x.to(torch.float32)")
    plain = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    size = plain.numel() * plain.element_size()
    data = ctypes.string_at(plain.data_ptr(), size) if size else b""
    return [TENSOR.ext, name, list(value.shape), data, value.requires_grad, parameter]


def _read_tensor(items: list[Any]) -> object:
    name, shape, data, requires_grad, parameter = items
    if name not in _TORCH_DTYPES or not _is_shape(shape) or type(data) is not bytes:
        raise ValueError("not a tensor that travels")
    torch = _need("torch", "a torch tensor", "pip install torch")
    dtype = getattr(torch, name.removeprefix("torch."))
    if math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError("a tensor whose shape and bytes disagree")
    flat = torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)
    made = flat.reshape(shape)
    if parameter:
        return torch.nn.Parameter(made, requires_grad=bool(requires_grad))
    return made.requires_grad_() if requires_grad else made


def _write_image(value: Any) -> list[object]:
    if value.mode not in _PIXEL_BYTES:
        raise CannotTravel(f'is an image of mode {value.mode}, which can\'t travel: pass x.convert("RGB")')
    try:
        value.load()
        data = value.tobytes()
    except Exception as error:  # its file is closed, gone or damaged
        raise CannotTravel("is an image that can't be read: load it before its file is closed") from error
    palette = value.palette if value.mode in ("P", "PA") else None
    colours = [palette.mode, bytes(value.getpalette(palette.mode))] if palette is not None else None
    info = {k: form for k, v in value.info.items() if type(k) is str and (form := _info(v)) is not _info}
    return [IMAGE.ext, value.mode, list(value.size), data, colours, info]


def _info(value: Any) -> object:
    """What PIL notes about a picture, as far as it is plain; this function itself for the rest."""
    if type(value) in ATOMS:
        return _info if LEAVES[type(value)](value) is not value else value
    if type(value) is tuple:
        items: list[object] = [_info(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        return [TUPLE.ext, *items] if _info not in items else _info
    return _info


def _read_image(items: list[Any]) -> object:
    images = _need("PIL.Image", "a PIL image", "pip install pillow")
    mode, (width, height), data, colours, info = items
    if type(width) is not int or type(height) is not int or min(width, height) < 0 or type(data) is not bytes:
        raise ValueError("not an image that travels")
    row = width * _PIXEL_BYTES[mode] if mode != "1" else (width + 7) // 8
    if row * height != len(data):
        raise ValueError("an image whose size and bytes disagree")
    made = images.frombytes(mode, (width, height), data) if data else images.new(mode, (width, height))
    if colours is not None:
        made.putpalette(colours[1], colours[0])
        if made.mode != mode:
            raise ValueError("an image whose palette and mode disagree")
    made.info.update(info)
    return made


READERS: dict[Mark, Callable[[list[Any]], object]] = {
    ARRAY: _read_array,
    SCALAR: _read_scalar,
    TEXT_SCALAR: _read_text_scalar,
    TENSOR: _read_tensor,
    IMAGE: _read_image,
}
