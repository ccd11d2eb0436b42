"""Conversion of a calibration to JSON with named arrays, and back.

A tree of frozen dataclasses is written by the names of its fields. On reading, the types of these
dataclasses decide which objects are built, never the file.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch

from clashsim.core.errors import RunError
from clashsim.core.scene_model import SceneModel
from clashsim.nets.impact import ImpactNet, net_of_shape

Tensors = dict[str, np.ndarray]
_SCENE_FILES = ("xml", "assets")  # fields of a scene that are stored as separate files
# Prefixes of the names of arrays.
_WIDTHS = "model.scaling.widths."
_NETWORK = "model.base.net."


def in_row_order(value: Any) -> Any:
    """A tree of dataclasses with all arrays in the order in which files hold them.

    Sums over arrays in another order differ in the last bits, and a model that was loaded must
    predict the same bits as the one that was saved.
    """
    if isinstance(value, torch.Tensor):
        return value.contiguous()
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value)
    if isinstance(value, tuple):
        return tuple(map(in_row_order, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: in_row_order(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


def pack(value: Any, key: str, tensors: Tensors) -> Any:
    """Convert a tree of dataclasses to JSON values.

    Args:
        value: The tree.
        key: Path of the tree; its arrays are named after it.
        tensors: The arrays are added here.

    Returns:
        The JSON value; an array is represented by its name in `tensors`.
    """
    if isinstance(value, ImpactNet):
        for name, tensor in value.state_dict().items():
            tensors[f"{key}.{name}"] = tensor.contiguous().numpy().copy()
        return value.shape
    if isinstance(value, torch.Tensor):
        tensors[key] = np.array(value.detach().numpy(), order="C")
        return key
    if isinstance(value, np.ndarray):
        tensors[key] = np.array(value, order="C")
        return key
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _pack_fields(value, key, tensors)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): pack(v, f"{key}.{k}", tensors) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [pack(v, f"{key}.{i}", tensors) for i, v in enumerate(value)]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{key} is a {type(value).__name__}, which a run folder cannot hold")


def _pack_fields(value: Any, key: str, tensors: Tensors) -> dict[str, Any]:
    """The fields of a dataclass as JSON, by name."""
    packed = {}
    for field in dataclasses.fields(value):
        if isinstance(value, SceneModel) and field.name in _SCENE_FILES:
            continue
        name = field.name
        packed[name] = pack(getattr(value, name), f"{key}.{name}", tensors)
    return packed


def unpack(kind: Any, value: Any, tensors: Tensors, key: str) -> Any:
    """Inverse of `pack`.

    Args:
        kind: The type to build.
        value: The JSON value.
        tensors: The arrays by name.
        key: Path of the value, for messages.

    Returns:
        An object of that type.
    """
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, types.UnionType):
        if value is None:
            return None
        return unpack(_member_of_union(arguments, value), value, tensors, key)
    if origin is tuple:
        return _unpack_tuple(arguments, value, tensors, key)
    if origin is Literal:
        if value not in arguments:
            choices = ", ".join(map(str, arguments))
            raise ValueError(f"{key} is {value!r}, not one of {choices}")
        return value
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if arguments[1] is bytes:  # assets, which are stored as separate files
            return dict(value)
        return {k: unpack(arguments[1], v, tensors, f"{key}.{k}") for k, v in value.items()}
    if kind is torch.Tensor:
        return torch.from_numpy(_array(value, tensors, "float64"))
    if kind is np.ndarray:
        return _array(value, tensors, "float64", "float32")
    if kind is ImpactNet:
        return _network(value, tensors)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _unpack_fields(kind, value, tensors, key)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    return _number_or_text(kind, value, key)


def _member_of_union(kinds: tuple[Any, ...], value: Any) -> Any:
    """The type that a value was written from: of several dataclasses, the one with its fields."""
    present = [kind for kind in kinds if kind is not type(None)]
    if len(present) == 1:
        return present[0]
    for kind in present:
        names = {field.name for field in dataclasses.fields(kind)}
        if isinstance(value, Mapping) and set(value) == names:
            return kind
    raise ValueError(f"none of {', '.join(kind.__name__ for kind in present)} has these fields")


def _unpack_tuple(
    kinds: tuple[Any, ...], value: Any, tensors: Tensors, key: str
) -> tuple[Any, ...]:
    """A tuple with entries of the given types; (type, ...) stands for any number of entries."""
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    items = []
    for i, (kind, item) in enumerate(zip(kinds, value, strict=True)):
        items.append(unpack(kind, item, tensors, f"{key}.{i}"))
    return tuple(items)


def _unpack_fields(kind: type, value: Any, tensors: Tensors, key: str) -> Any:
    """A dataclass from its fields, by name."""
    hints = get_type_hints(kind)
    fields = {}
    for name, item in value.items():
        fields[name] = unpack(hints[name], item, tensors, f"{key}.{name}")
    return kind(**fields)


def _number_or_text(kind: Any, value: Any, key: str) -> Any:
    """A number or text of exactly the type `kind`; a float may be written as an integer."""
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise RunError(f"the run is damaged: {key} is {value}, which is not a finite number")
        return float(value)
    if kind in (int, str, bool) and type(value) is kind:
        return value
    raise TypeError(f"{key} must be {getattr(kind, '__name__', kind)}, got {type(value).__name__}")


def _array(key: str, tensors: Tensors, *kinds: str) -> np.ndarray:
    """The array with a name; raises `RunError` if its dtype is none of `kinds` or it is damaged."""
    array = tensors[key]
    if array.dtype.name not in kinds:
        wanted = " or ".join(kinds)
        raise RunError(f"the run is damaged: {key} holds {array.dtype.name}, not {wanted} numbers")
    # An ignored circumstance has an infinite width (see `InputScaling`).
    good = array > 0 if key.startswith(_WIDTHS) else np.isfinite(array)
    if not good.all():
        raise RunError(f"the run is damaged: {key} holds numbers that are not finite")
    return array.copy()


def _network(shape: dict[str, Any], tensors: Tensors) -> ImpactNet:
    """The network from its shape and its stored weights.

    The shape is compared with the weights first, so that a damaged file cannot make a huge network.
    """
    keys = [key for key in tensors if key.startswith(_NETWORK)]
    own = {key.removeprefix(_NETWORK): _array(key, tensors, "float32") for key in keys}
    layers = sum(name.startswith("weights.") for name in own)
    weights = [own[f"weights.{i}"].shape for i in range(layers)]
    outputs = shape["outputs"] * shape.get("heads", 1)
    sizes = [shape["inputs"], *[shape["width"]] * (layers - 1), outputs]
    expected = [(shape["members"], a, b) for a, b in itertools.pairwise(sizes)]
    if shape["layers"] != layers or weights != expected:
        raise ValueError(
            f"the network has the shape {shape} in config.json, but its weights do not"
        )
    net = net_of_shape(shape)
    net.load_state_dict({name: torch.from_numpy(array) for name, array in own.items()})
    return net.requires_grad_(False)
