"""The deterministic policy as ONNX: observation in, clipped action out, nothing else needed.

Normalizer, network and clip are written out operator by operator from the checkpoint's
parameters, and compared with the policy in JAX before anything is saved.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from s3n_mjx import __version__
from s3n_mjx.training.policy import Policy

# Robots carry old runtimes: opset 13 in IR 7 loads in every onnxruntime since 1.6 (2020), and
# none of the few operators here has gained anything since that a policy would miss.
OPSET = 13
IR_VERSION = 7
INPUT, OUTPUT = "observation", "action"

Array = NDArray[np.float32]


def policy_model(params: Any, metadata: Mapping[str, Any]) -> onnx.ModelProto:
    """ONNX model from ``observation`` (batch, n) to ``action`` (batch, nu), both float32.

    Args:
        params: Brax's (normalizer, policy, ...), of :func:`s3n_mjx.training.policy.make_policy`.
        metadata: goes into the model's `metadata_props`, every value as JSON.
    """
    normalizer, policy = params[0], params[1]["params"]
    hidden = policy["MLP_0"]
    layers = [hidden[f"hidden_{i}"] for i in range(len(hidden))] + [policy["Dense_0"]]
    nodes, constants = [], []

    def constant(name: str, value: Any) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, dtype=np.float32), name))
        return name

    def add(operator: str, inputs: list[str], output: str) -> str:
        nodes.append(helper.make_node(operator, inputs, [output], name=output))
        return output

    # As Brax's `running_statistics.normalize` does, which clips nothing here.
    x = add("Sub", [INPUT, constant("normalizer_mean", normalizer.mean)], "centred")
    x = add("Div", [x, constant("normalizer_std", normalizer.std)], "normalized")
    for i, layer in enumerate(layers):
        weights = [constant(f"{kind}_{i}", layer[kind]) for kind in ("kernel", "bias")]
        x = add("Gemm", [x, *weights], f"layer_{i}")
        if i + 1 < len(layers):  # swish
            x = add("Mul", [x, add("Sigmoid", [x], f"gate_{i}")], f"hidden_{i}")
    # The most probable action of a normal distribution is its mean; the environment clips it.
    add("Clip", [x, constant("lowest", -1.0), constant("highest", 1.0)], OUTPUT)

    sizes = np.shape(layers[0]["kernel"])[0], np.shape(layers[-1]["kernel"])[1]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])]
        for name, size in zip((INPUT, OUTPUT), sizes, strict=True)
    )
    model = helper.make_model(
        helper.make_graph(nodes, "policy", inputs, outputs, constants),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="s3n_mjx",
        producer_version=__version__,
    )
    helper.set_model_props(
        model, {key: json.dumps(value, allow_nan=False) for key, value in metadata.items()}
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def actions_onnx(model: onnx.ModelProto, observations: Array) -> Array:
    """Actions (N, nu) of the model by onnxruntime on the CPU, for observations (N, n)."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return np.asarray(session.run([OUTPUT], {INPUT: observations})[0])


def actions_jax(policy: Policy, observations: Array) -> Array:
    """Actions (N, nu) that the environment makes of the policy's, for observations (N, n)."""
    # In full float32 as onnxruntime; accelerators would multiply in 10 or 8 bits.
    with jax.default_matmul_precision("highest"):
        actions, _ = jax.jit(policy)(observations, jax.random.PRNGKey(0))
    return np.clip(np.asarray(actions), -1.0, 1.0)


def drawn_observations(
    params: Any, count: int, spread: float, limit: float, seed: int = 0
) -> Array:
    """Observations (count, n) such as training saw, by the normalizer's mean and deviation.

    Args:
        params: Brax's (normalizer, ...).
        count: how many.
        spread: factor on the standard deviation.
        limit: of every element, as the environment clips it.
        seed: of the draw.
    """
    mean, std = (np.asarray(x, dtype=np.float32) for x in (params[0].mean, params[0].std))
    noise = np.random.default_rng(seed).standard_normal((count, len(mean)), dtype=np.float32)
    return np.clip(mean + spread * std * noise, -limit, limit).astype(np.float32)
