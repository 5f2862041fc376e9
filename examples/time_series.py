"""Embeddings of a time series: moments that follow each other are pairs.

python examples/time_series.py
"""

import numpy as np

import aninfonce_jax as an

STEPS = 200


def record(moments: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """A slow and a fast oscillation, seen by eight sensors: put your recording here."""
    rng = np.random.default_rng(0)
    time = np.arange(moments)
    factors = np.stack([np.sin(2 * np.pi * time / 200), np.sin(2 * np.pi * time / 31)], axis=1)
    sensors = np.tanh(factors @ rng.normal(size=(2, 8)))
    return factors, sensors + 0.05 * rng.normal(size=sensors.shape)


def main() -> float:
    factors, sensors = record()
    model = an.AnInfoNCE(dim=2, steps=STEPS).fit(an.pairs.time_lagged(sensors, lag=1))
    found = float(an.linear_r2(factors, model.transform(sensors)))
    print(f"R² of both oscillations: {found:.3f}, of eight noisy sensors and no labels")
    return found


if __name__ == "__main__":
    main()
