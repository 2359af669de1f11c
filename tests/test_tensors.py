"""Tensors without torch: a stand-in with the few names that are used of it. With torch: test_values."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
from msgspec import msgpack

from lakeshore.core.errors import MissingExtra
from lakeshore.core.extensions import leaves
from lakeshore.core.values import MalformedValue, pack, unpack

DTYPES = {"torch.float32": "<f4", "torch.int64": "<i8", "torch.bool": "?"}


class DType:
    def __init__(self, name: str) -> None:
        self.name, self.itemsize = name, np.dtype(DTYPES.get(name, "<f4")).itemsize

    def __str__(self) -> str:
        return self.name


class Tensor:
    """Plain memory on the CPU."""

    is_nested = False
    layout = "strided"
    device = types.SimpleNamespace(type="cpu")

    def __init__(self, data: Any, dtype: DType, requires_grad: bool = False) -> None:
        self.data, self.dtype, self.requires_grad = data, dtype, requires_grad

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    def detach(self) -> Tensor:
        return type(self)(self.data, self.dtype)

    def cpu(self) -> Tensor:
        return self

    resolve_conj = resolve_neg = cpu

    def contiguous(self) -> Tensor:
        return type(self)(np.ascontiguousarray(self.data), self.dtype)

    def numel(self) -> int:
        return self.data.size

    def element_size(self) -> int:
        return self.data.itemsize

    def data_ptr(self) -> int:
        return self.data.ctypes.data

    def reshape(self, shape: list[int]) -> Tensor:
        return Tensor(self.data.reshape(shape), self.dtype)

    def requires_grad_(self) -> Tensor:
        self.requires_grad = True
        return self


class Parameter(Tensor):
    def __init__(self, data: Any, dtype: DType | None = None, requires_grad: bool = True) -> None:
        array, kind = (data.data, data.dtype) if isinstance(data, Tensor) else (data, dtype)
        super().__init__(array, kind or DType("torch.float32"), requires_grad)


class Own(Tensor):
    pass


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stand-in, in the place of the real one."""
    module: Any = types.ModuleType("torch")
    parameters: Any = types.ModuleType("torch.nn.parameter")
    module.Tensor, module.strided = Tensor, "strided"
    module.nn, parameters.Parameter = types.SimpleNamespace(Parameter=Parameter), Parameter
    for name in DTYPES:
        setattr(module, name.removeprefix("torch."), DType(name))
    module.frombuffer = lambda data, dtype: Tensor(np.frombuffer(data, DTYPES[dtype.name]), dtype)
    module.empty = lambda size, dtype: Tensor(np.empty(size, DTYPES[dtype.name]), dtype)
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setitem(sys.modules, "torch.nn.parameter", parameters)
    return module


def made(values: Any, name: str, **options: Any) -> Tensor:
    return Tensor(np.array(values, DTYPES[name]), DType(name), **options)


@pytest.mark.parametrize(
    "value",
    [
        made([[1, 2], [3, 4]], "torch.int64"),
        Tensor(np.arange(6, dtype="<i8").reshape(2, 3).T, DType("torch.int64")),  # not contiguous
        made([True, False], "torch.bool"),
        made(1.5, "torch.float32", requires_grad=True),
        made([], "torch.float32"),
    ],
)
def test_a_tensor_comes_back(torch: Any, value: Tensor) -> None:
    back = unpack(pack({"x": value}))["x"]
    assert type(back) is Tensor
    assert (str(back.dtype), back.requires_grad) == (str(value.dtype), value.requires_grad)
    np.testing.assert_array_equal(back.data, value.data, strict=True)


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_parameter_comes_back(torch: Any, requires_grad: bool) -> None:
    value = Parameter(np.ones(2, "<f4"), DType("torch.float32"), requires_grad)
    back = unpack(pack([value]))[0]
    assert (type(back), back.requires_grad) == (Parameter, requires_grad)
    np.testing.assert_array_equal(back.data, value.data, strict=True)


def sparse() -> Tensor:
    value = made([1.0], "torch.float32")
    value.layout = "sparse"
    return value


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (sparse(), "is a tensor without plain data"),
        (Tensor(np.ones(1, "<f4"), DType("torch.quint8")), "is a tensor of torch.quint8, which can't travel"),
        (Own(np.ones(1, "<f4"), DType("torch.float32")), "is a Own, which can't travel"),
    ],
)
def test_a_tensor_that_cannot_travel(torch: Any, value: Tensor, why: str) -> None:
    with pytest.raises(TypeError, match=rf"^value\[0\] {why}"):
        pack([value])


def packed(name: object, shape: object, data: object) -> bytes:
    return msgpack.encode([leaves.TENSOR.ext, name, shape, data, False, False])


@pytest.mark.parametrize(
    ("name", "shape", "data"),
    [
        ("torch.load", [1], b"1234"),
        ("torch.float32", [-1], b"1234"),
        ("torch.float32", [1], "1234"),
        ("torch.float32", [2], b"1234"),
    ],
)
def test_bytes_that_are_no_tensor(torch: Any, name: object, shape: object, data: object) -> None:
    with pytest.raises(MalformedValue):
        unpack(packed(name, shape, data))


def test_a_tensor_where_torch_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtra, match=r"this value holds a torch tensor, .*pip install torch"):
        unpack(packed("torch.float32", [1], b"1234"))
