"""Which assumption do the pairs of an encoder break? Here one that loses the sign of a factor.

python examples/diagnose_encoder.py
"""

import jax
import numpy as np

import aninfonce_jax as an
from aninfonce_jax.diagnosis.findings import Diagnosis


def my_encoder(x: np.ndarray) -> np.ndarray:
    """Put your encoder here: observations [n, ...] -> embeddings [n, dim]."""
    return np.concatenate([x[:, :3], np.abs(x[:, 3:])], axis=1)


def main() -> Diagnosis:
    process = an.LatentProcess(
        an.Sphere(4),
        an.marginals.Uniform(),
        an.conditionals.Anisotropic([20.0, 20.0, 5.0, 5.0]),
        lambda z: z,
    )
    pairs = an.sample_pairs(jax.random.key(0), process, 1000)
    found = an.diagnose(pairs.view1, pairs.view2, encoder=my_encoder)
    print(found)
    an.write_diagnosis(found, "diagnosis.html")
    return found


if __name__ == "__main__":
    main()
