"""A strike table as an ONNX model: the same numbers without torch and without clashsim.

The graph is that of `StrikeTable.forward` and `StrikeTable.twist`, in double precision. It reads
the 4^d coefficients around a strike and weighs them with cubic B-splines.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clashsim.core.extras import needs
from clashsim.nets.strike_table import StrikeTable

_OPSET = 17
_IR_VERSION = 9  # read by onnxruntime from 1.15 on
_TWIST, _REST, _REST_CHANGE = (0, 3), (3, 6), (6, 15)  # columns of a strike table


def strike_table_onnx(table: StrikeTable, contract: Mapping[str, Any]) -> bytes:
    """Write a strike table as an ONNX model.

    Args:
        table: The table.
        contract: What the inputs and outputs mean; it becomes metadata of the model.

    Returns:
        The file. Inputs are pose (N, 3), strike (N, d) and noise (N, 3), outputs rest (N, 3) and
        twist (N, 3), all in double precision, as `StrikeTable.forward` and `twist` have them.
    """
    with needs("onnx", "onnx"):
        import onnx
        from onnx import helper

    graph = _graph(table)
    double = onnx.TensorProto.DOUBLE
    num_inputs = len(table.names)
    inputs = [
        helper.make_tensor_value_info(name, double, ["N", width])
        for name, width in (("pose", 3), ("strike", num_inputs), ("noise", 3))
    ]
    outputs = [helper.make_tensor_value_info(name, double, ["N", 3]) for name in ("rest", "twist")]
    constants = [onnx.numpy_helper.from_array(v, k) for k, v in graph.constants.items()]
    nodes = [helper.make_node(*parts, name=parts[2][0], **more) for parts, more in graph.nodes]
    model = helper.make_model(
        helper.make_graph(nodes, "strike_table", inputs, outputs, constants),
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="clashsim",
    )
    helper.set_model_props(model, {"contract": json.dumps(contract)})
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


class _Graph:
    """Nodes and constants of a graph, in the order of their evaluation."""

    def __init__(self) -> None:
        self.nodes: list[tuple[tuple[str, list[str], list[str]], dict[str, Any]]] = []
        self.constants: dict[str, np.ndarray] = {}

    def constant(self, name: str, values: Any, kind: type = np.float64) -> str:
        """Add a constant; its name."""
        self.constants[name] = np.asarray(values, kind)
        return name

    def add(self, operator: str, *inputs: str, out: str = "", **more: Any) -> str:
        """Add a node with one output; the name of the output."""
        out = out or f"v{len(self.nodes)}"
        self.nodes.append(((operator, list(inputs), [out]), more))
        return out

    def columns(self, values: str, limits: Sequence[int], out: str = "") -> str:
        """Some columns of a matrix."""
        first, last = (self.constant(f"i{k}", [k], np.int64) for k in limits)
        return self.add(
            "Slice", values, first, last, self.constant("axis1", [1], np.int64), out=out
        )

    def reshaped(self, values: str, shape: Sequence[int]) -> str:
        """Values in another shape; 0 keeps a dimension, -1 is what remains."""
        name = "shape_" + "_".join(map(str, shape))
        return self.add("Reshape", values, self.constant(name, shape, np.int64))


def _graph(table: StrikeTable) -> _Graph:
    """The graph of `StrikeTable.forward` with noise, and of `twist`."""
    graph = _Graph()
    columns = _table_columns(graph, table)
    speed_index = table.names.index("speed")
    speed = graph.columns("strike", (speed_index, speed_index + 1))
    squared = graph.add("Mul", speed, speed)
    graph.add("Mul", graph.columns(columns, _TWIST), speed, out="twist")
    expected = graph.add("Mul", graph.columns(columns, _REST), squared)
    change = graph.add("Mul", graph.columns(columns, _REST_CHANGE), squared)
    by_noise = graph.add(
        "MatMul", graph.reshaped(change, (0, 3, 3)), graph.reshaped("noise", (0, 3, 1))
    )
    moved = graph.add("Add", expected, graph.reshaped(by_noise, (0, 3)))
    x, y, rotation = (graph.columns(moved, (k, k + 1)) for k in range(3))
    yaw = graph.columns("pose", (2, 3))
    # The sine of a quarter turn more: onnxruntime 1.23 has no cosine in double precision.
    quarter = graph.constant("quarter_turn", 0.5 * np.pi)
    cosine, sine = graph.add("Sin", graph.add("Add", yaw, quarter)), graph.add("Sin", yaw)
    world_x = graph.add("Sub", graph.add("Mul", cosine, x), graph.add("Mul", sine, y))
    world_y = graph.add("Add", graph.add("Mul", sine, x), graph.add("Mul", cosine, y))
    displacement = graph.add("Concat", world_x, world_y, rotation, axis=1)
    graph.add("Add", "pose", displacement, out="rest")
    return graph


def _table_columns(graph: _Graph, table: StrikeTable) -> str:
    """The columns (N, 15) of the table at the strikes, as `SplineTable.forward`."""
    spline = table.table
    low = graph.constant("low", spline.low.numpy())
    step = graph.constant("step", spline.step.numpy())
    last = graph.constant("last", spline.last.numpy())
    zero = graph.constant("zero", 0.0)
    last_cell = graph.constant("last_cell", spline.last.numpy() - 1)
    index = graph.add("Div", graph.add("Sub", "strike", low), step)
    inside = graph.add("Min", graph.add("Max", index, zero), last)
    cell = graph.add("Min", graph.add("Floor", inside), last_cell)
    stride = graph.constant("stride", spline.stride.numpy().reshape(-1, 1))
    first = graph.add("Cast", graph.add("MatMul", cell, stride), to=7)  # to int64
    rows = graph.add("Add", first, graph.constant("window", spline.window.numpy(), np.int64))
    weights = _spline_weights(graph, graph.add("Sub", inside, cell))  # (N, d, 4)
    axis = graph.constant("axis1", [1], np.int64)
    product = ""
    for k in range(len(table.names)):
        at = graph.constant(f"only{k}", k, np.int64)
        along = graph.add("Gather", weights, at, axis=1)  # (N, 4)
        if not product:
            product = along
            continue
        outer = graph.add(
            "Mul", graph.reshaped(product, (0, -1, 1)), graph.reshaped(along, (0, 1, 4))
        )
        product = graph.reshaped(outer, (0, -1))
    coefficients = graph.constant("rows", spline.rows.numpy())
    read = graph.add("Gather", coefficients, rows, axis=0)  # (N, 4^d, 15)
    summed = graph.add("MatMul", graph.add("Unsqueeze", product, axis), read)
    return graph.add("Squeeze", summed, axis)


def _spline_weights(graph: _Graph, z: str) -> str:
    """The cubic B-splines (N, d, 4) at positions z (N, d) within a cell."""
    numbers = {value: graph.constant(f"c{value}", float(value)) for value in (1, 3, 4, 6)}
    rest = graph.add("Sub", numbers[1], z)
    square = graph.add("Mul", z, z)
    first = graph.add("Mul", graph.add("Mul", rest, rest), rest)
    last = graph.add("Mul", square, z)
    three = graph.add("Mul", numbers[3], last)
    second = graph.add(
        "Add", graph.add("Sub", three, graph.add("Mul", numbers[6], square)), numbers[4]
    )
    third = graph.add("Sub", numbers[6], graph.add("Add", first, graph.add("Add", second, last)))
    axis = graph.constant("axis2", [2], np.int64)
    stacked = [graph.add("Unsqueeze", part, axis) for part in (first, second, third, last)]
    return graph.add("Div", graph.add("Concat", *stacked, axis=2), numbers[6])
