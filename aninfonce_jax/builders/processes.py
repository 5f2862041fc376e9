"""Data-generating processes of a config: spaces, marginals, conditionals, mixings."""

import dataclasses
from collections.abc import Callable

import numpy as np

from aninfonce_jax.config import kinds
from aninfonce_jax.config.schema import ConfigError
from aninfonce_jax.dgp import conditionals, marginals
from aninfonce_jax.dgp.conditionals import Conditional, concentration_values
from aninfonce_jax.dgp.errors import ProcessError
from aninfonce_jax.dgp.marginals import Marginal
from aninfonce_jax.dgp.mixing import draw_mixing
from aninfonce_jax.dgp.spaces import Box, Real, Space, Sphere
from aninfonce_jax.dgp.stream import LatentProcess
from aninfonce_jax.sources.ensemble import EnsembleSource
from aninfonce_jax.sources.process import ProcessSource, ProcessWithNegatives
from aninfonce_jax.types import Array

Mixing = Callable[[Array], Array]
# (key, n) -> latents [n, dim] and their observations [n, ...].
Draw = Callable[[Array, int], tuple[Array, Array]]


def build_process(config: kinds.ProcessConfig, key: Array) -> LatentProcess:
    """Makes the process that a section describes; `key` draws its mixing."""
    mixing = draw_mixing(key, config.dim, **dataclasses.asdict(config.mixing))
    return mixed_process(config, config.concentration, mixing)


def build_processes(config: kinds.ProcessesConfig, key: Array) -> EnsembleSource:
    """Makes processes that share a mixing, which `key` draws."""
    mixing = draw_mixing(key, config.dim, **dataclasses.asdict(config.mixing))
    members = [ProcessSource(mixed_process(config, own, mixing)) for own in config.members]
    return EnsembleSource(members[0], members)


def with_negatives(
    config: kinds.ProcessWithNegativesConfig, process: LatentProcess
) -> ProcessWithNegatives:
    """Returns pairs of a process with negatives drawn by its section's Λ⁻."""
    try:
        near = _build_conditional(config, np.broadcast_to(config.own_concentration, config.dim))
        near.check(process.space)
    except ProcessError as error:
        raise ConfigError(f"source.own_concentration can't be sampled: {error}") from error
    return ProcessWithNegatives(process, near, config.own_negatives, shifted=build_shifted(config))


def mixed_process(
    config: kinds.FamilyConfig, layout: kinds.ConcentrationConfig, mixing: Mixing
) -> LatentProcess:
    """Makes the process of a section's latents with one Λ, seen through a mixing."""
    try:
        values = concentration_values(
            layout.layout, config.dim, layout.high, layout.low, layout.values
        )
        conditional = _build_conditional(config, values)
        return LatentProcess(build_space(config), _build_marginal(config), conditional, mixing)
    except ProcessError as error:
        raise ConfigError(f"config.source can't be sampled: {error}") from error


def build_anchors(config: kinds.AnchorsConfig, mixing: Mixing) -> Draw:
    """Returns a function to n latents and their observations."""
    space, marginal = build_space(config), _build_marginal(config)

    def draw(key: Array, n: int) -> tuple[Array, Array]:
        latents = marginal.sample(key, space, n)
        return latents, mixing(latents)

    return draw


def build_space(config: kinds.AnchorsConfig) -> Space:
    """Returns the space of the latents of a section."""
    match config.space:
        case "sphere":
            return Sphere(config.dim, config.radius)
        case "box":
            return Box(config.dim, config.box_low, config.box_high, config.box_boundary)
        case "real":
            return Real(config.dim)


def _build_marginal(config: kinds.AnchorsConfig) -> Marginal:
    match config.marginal:
        case "uniform":
            return marginals.Uniform()
        case "normal":
            return marginals.Normal(config.marginal_scale)
        case "laplace":
            return marginals.Laplace(config.marginal_scale)
        case "generalized_normal":
            return marginals.GeneralizedNormal(config.marginal_scale, config.marginal_exponent)
        case "vmf":
            return marginals.VonMisesFisher(config.marginal_concentration)


def build_shifted(config: kinds.ProcessConfig) -> Marginal | None:
    """Returns the anchors of another test than that on anchors like those of training."""
    if config.test_pole == "none":
        return None
    sign = 1.0 if config.test_pole == "north" else -1.0
    direction = np.eye(1, config.dim)[0] * sign
    return marginals.VonMisesFisher(config.marginal_concentration, direction)


def _build_conditional(config: kinds.FamilyConfig, values: np.ndarray) -> Conditional:
    """Returns the family of a section with Λ = `values` [dim]."""
    match config.conditional:
        case "anisotropic":
            return conditionals.Anisotropic(values, config.sampler, config.shell)
        case "vmf":
            return conditionals.VonMisesFisher(float(values[0]))
        case "normal":
            return conditionals.Normal(values)
        case "laplace":
            return conditionals.Laplace(values)
        case "generalized_normal":
            return conditionals.GeneralizedNormal(values, config.conditional_exponent)
        case "bimodal":
            if config.space == "sphere":
                base = conditionals.Anisotropic(values, config.sampler, config.shell)
                return conditionals.Bimodal(base, config.bimodal_offset)
            return conditionals.Bimodal(conditionals.Normal(values), config.bimodal_offset)
