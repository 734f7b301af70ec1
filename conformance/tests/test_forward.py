"""What each operation computes, against small examples written by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradspec.programs import forward
from gradspec.programs.operations import OPERATIONS
from gradspec.programs.program import Input, Program, Root, Step

E = 2.718281828459045
M = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]

# operation, operands, attributes, result (a tuple where there are several)
EXAMPLES: list[tuple[str, list[Any], dict[str, Any], Any]] = [
    ("neg", [[1.0, -2.0]], {}, [-1, 2]),
    ("neg", [[1 + 2j]], {}, [-1 - 2j]),
    ("abs", [[1.5, -2.0, 0.0]], {}, [1.5, 2, 0]),
    ("relu", [[1.5, -2.0, 0.0]], {}, [1.5, 0, 0]),
    ("square", [[1.5, -2.0]], {}, [2.25, 4]),
    ("square", [[1 + 2j]], {}, [-3 + 4j]),
    ("reciprocal", [[2.0, -0.5]], {}, [0.5, -2]),
    ("sqrt", [[4.0, 2.25]], {}, [2, 1.5]),
    ("exp", [[0.0, 1.0, -1.0]], {}, [1, E, 1 / E]),
    ("log", [[1.0, E]], {}, [0, 1]),
    ("sin", [[0.0, np.pi / 6, -np.pi / 2]], {}, [0, 0.5, -1]),
    ("cos", [[0.0, np.pi / 3, np.pi]], {}, [1, 0.5, -1]),
    ("tanh", [[0.0, 0.5, -0.5]], {}, [0, (E - 1) / (E + 1), (1 - E) / (E + 1)]),
    ("sigmoid", [[0.0, 1.0, -1.0, -800.0, 800.0]], {}, [0.5, E / (E + 1), 1 / (E + 1), 0, 1]),
    ("clone", [M], {}, M),
    ("pow", [[2.0, -3.0]], {"exponent": 3}, [8, -27]),
    ("pow", [[2.0, 0.0]], {"exponent": 0}, [1, 1]),
    ("pow", [[4.0, 0.25]], {"exponent": -0.5}, [0.5, 2]),
    ("add", [M, [1.0, 0.0, -1.0]], {}, [[2, 2, 2], [5, 5, 5]]),
    ("sub", [[[1.0], [2.0]], [3.0, 4.0]], {}, [[-2, -3], [-1, -2]]),
    ("mul", [M, 2.0], {}, [[2, 4, 6], [8, 10, 12]]),
    ("mul", [[1 + 2j], [3 - 1j]], {}, [5 + 5j]),
    ("div", [[1.0, -3.0], [2.0, 4.0]], {}, [0.5, -0.75]),
    ("where", [[True, False], [1.0, 2.0], -1.0], {}, [1, -1]),
    ("sum", [M], {"dim": None, "keepdim": False}, 21),
    ("sum", [M], {"dim": None, "keepdim": True}, [[21]]),
    ("sum", [M], {"dim": 0, "keepdim": False}, [5, 7, 9]),
    ("sum", [M], {"dim": -1, "keepdim": True}, [[6], [15]]),
    ("mean", [M], {"dim": None, "keepdim": False}, 3.5),
    ("mean", [M], {"dim": -1, "keepdim": True}, [[2], [5]]),
    ("cumsum", [M], {"dim": 1}, [[1, 3, 6], [4, 9, 15]]),
    ("cumsum", [M], {"dim": -2}, [[1, 2, 3], [5, 7, 9]]),
    ("matmul", [M, [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]], {}, [[4, 5], [10, 11]]),
    ("matmul", [M, [1.0, 0.0, -1.0]], {}, [-2, -2]),
    ("matmul", [[1.0, -1.0], M], {}, [-3, -3, -3]),
    ("matmul", [[1.0, 2.0], [3.0, 4.0]], {}, 11),
    ("reshape", [M], {"shape": (3, 2)}, [[1, 2], [3, 4], [5, 6]]),
    ("transpose", [M], {"dim0": 0, "dim1": -1}, [[1, 4], [2, 5], [3, 6]]),
    ("permute", [[[[1.0, 2.0]], [[3.0, 4.0]]]], {"dims": (2, 0, 1)}, [[[1], [3]], [[2], [4]]]),
    ("expand", [[1.0, 2.0]], {"shape": (2, 2)}, [[1, 2], [1, 2]]),
    ("squeeze", [[[1.0], [2.0]]], {"dim": -1}, [1, 2]),
    ("squeeze", [[[1.0], [2.0]]], {"dim": 0}, [[1], [2]]),
    ("unsqueeze", [[1.0, 2.0]], {"dim": -1}, [[1], [2]]),
    ("flip", [M], {"dims": (0, 1)}, [[6, 5, 4], [3, 2, 1]]),
    ("narrow", [M], {"dim": 1, "start": 1, "length": 2}, [[2, 3], [5, 6]]),
    ("select", [M], {"dim": -1, "index": 1}, [2, 5]),
    ("cat", [M, [[7.0], [8.0]]], {"dim": -1}, [[1, 2, 3, 7], [4, 5, 6, 8]]),
    ("stack", [[1.0, 2.0], [3.0, 4.0]], {"dim": 1}, [[1, 3], [2, 4]]),
    ("stack", [[1.0, 2.0], [3.0, 4.0]], {"dim": -2}, [[1, 2], [3, 4]]),
    ("split", [M], {"split_size": 2, "dim": 1}, ([[1, 2], [4, 5]], [[3], [6]])),
    ("split", [[]], {"split_size": 2, "dim": 0}, ([],)),
    ("unbind", [M], {"dim": 0}, ([1, 2, 3], [4, 5, 6])),
    ("unbind", [[1.0, 2.0]], {"dim": -1}, (1, 2)),
    ("index_select", [M, [2, 0, 2]], {"dim": 1}, [[3, 1, 3], [6, 4, 6]]),
    ("complex", [[1.0, 2.0], [3.0, -4.0]], {}, [1 + 3j, 2 - 4j]),
    ("real", [[1 + 3j]], {}, [1]),
    ("imag", [[1 + 3j]], {}, [3]),
    ("conj", [[1 + 3j]], {}, [1 - 3j]),
]


def flat(nested: Any, dtype: str, **flags: bool) -> Input:
    array = np.array(nested, dtype=dtype)
    return Input(array.shape, tuple(array.reshape(array.size).tolist()), dtype, **flags)


def program(op: str, operands: list[Any], attributes: dict[str, Any], narrow: bool = False) -> Program:
    dtypes = {"f": "float32" if narrow else "float64", "c": "complex64" if narrow else "complex128"}
    dtypes |= {"i": "int64", "b": "bool"}
    inputs = tuple(flat(o, dtypes[np.array(o).dtype.kind]) for o in operands)
    return Program(inputs, (Step(op, tuple(range(len(inputs))), tuple(sorted(attributes.items()))),)).check()


def test_every_operation_has_an_example() -> None:
    assert {op for op, *_ in EXAMPLES} == set(OPERATIONS) == set(forward.FORWARD)


@pytest.mark.parametrize(("op", "operands", "attributes", "expected"), EXAMPLES)
def test_each_operation_computes_its_example(op: str, operands: Any, attributes: Any, expected: Any) -> None:
    one = program(op, operands, attributes)
    results = forward.evaluate(one)[len(operands) :]
    assert [r.shape for r in results] == one.shapes()[len(operands) :]
    for result, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert isinstance(result, np.ndarray)
        assert result.shape == np.shape(wanted)
        assert result.dtype.name in ("float64", "complex128")
        np.testing.assert_allclose(result, wanted, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize(("op", "operands", "attributes", "expected"), EXAMPLES)
def test_the_input_dtype_is_kept_on_request(op: str, operands: Any, attributes: Any, expected: Any) -> None:
    one = program(op, operands, attributes, narrow=True)
    results = forward.evaluate(one, dtype="input")[len(operands) :]
    assert {r.dtype.name for r in results} <= {"float32", "complex64"}
    for result, wanted in zip(results, expected if isinstance(expected, tuple) else (expected,), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6)


def test_sizes_of_zero_keep_their_shape() -> None:
    assert forward.to_array((2, 0, 3), ()).shape == (2, 0, 3)
    assert forward.to_array((), (1.5,)).shape == ()
    assert forward.to_array((0,), (), "complex64").dtype == np.complex64
    with pytest.raises(ValueError, match=r"3 values do not fill shape \(2,\)"):
        forward.to_array((2,), (1, 2, 3))


def test_narrow_inputs_are_rounded_before_they_are_widened() -> None:
    values = forward.evaluate(Program((Input((1,), (0.1,), "float32"), Input((1,), (0.1,), "float64"))))
    assert values[0][0] == float(np.float32(0.1)) != values[1][0]
    assert values[0].dtype == np.float64


@pytest.mark.parametrize(
    ("number", "rounded"),
    [(1.0, 1.0), (1 + 2**-8, 1.0), (1 + 3 * 2**-8, 1 + 2**-6), (1 + 2**-8 + 2**-20, 1 + 2**-7), (-0.1, -0.10009765625)],
)
def test_bfloat16_is_rounded_to_eight_bits(number: float, rounded: float) -> None:
    assert forward.to_array((1,), (number,), "bfloat16")[0] == rounded


def test_shifts_reach_inputs_and_results() -> None:
    one = program("square", [[1.0, 2.0]], {})
    values = forward.run(one, forward.inputs(one), shift={0: np.array([1.0, 0.0]), 1: np.array([0.5, 0.25])})
    np.testing.assert_array_equal(values[1], [4.5, 4.25])


def test_seeds_default_to_ones_and_add_up() -> None:
    one = program("neg", [[1.0, 2.0]], {}).with_roots(Root(1), Root(1, (0.5, -1.0)), Root(0, (3.0, 4.0)))
    seeds = forward.seeds(one, forward.evaluate(one))
    np.testing.assert_array_equal(seeds[1], [1.5, 0])
    np.testing.assert_array_equal(seeds[0], [3, 4])


def test_feeding_follows_value_operands_only() -> None:
    inputs = (flat([1.0, 2.0], "float64"), flat([0, 1], "int64"), flat([1.0], "float64"))
    steps = (Step("index_select", (0, 1), (("dim", 0),)), Step("neg", (2,)), Step("square", (3,)))
    assert forward.feeding(Program(inputs, steps).check(), [5]) == {0, 3, 5}
