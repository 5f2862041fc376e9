"""What an estimator is to scikit-learn: its classes where it is installed, else a part of them."""

import inspect
from typing import Any, Self

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.exceptions import NotFittedError
except ImportError:

    class NotFittedError(ValueError, AttributeError):  # type: ignore[no-redef]
        """An estimator is asked for what only `fit` can tell."""

    class BaseEstimator:  # type: ignore[no-redef]
        """Arguments of the constructor as parameters that can be read, set and shown."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Returns the arguments of the constructor by name."""
            del deep
            names = [name for name in inspect.signature(type(self)).parameters if name != "self"]
            return {name: getattr(self, name) for name in names}

        def set_params(self, **params: Any) -> Self:
            """Sets arguments of the constructor.

            Raises:
              ValueError: it has none of that name.
            """
            known = self.get_params()
            for name, value in params.items():
                if name not in known:
                    raise ValueError(
                        f"Invalid parameter {name!r} for estimator {type(self).__name__}. "
                        f"Valid parameters are: {sorted(known)}."
                    )
                setattr(self, name, value)
            return self

        def __repr__(self) -> str:
            usual = inspect.signature(type(self)).parameters
            changed = {
                name: value
                for name, value in self.get_params().items()
                if value is not usual[name].default and value != usual[name].default
            }
            inside = ", ".join(f"{name}={value!r}" for name, value in changed.items())
            return f"{type(self).__name__}({inside})"

    class TransformerMixin:  # type: ignore[no-redef]
        """What scikit-learn adds to a transformer; nothing, without it."""

    class ClassNamePrefixFeaturesOutMixin:  # type: ignore[no-redef]
        """Names of the embeddings."""

        def get_feature_names_out(self, input_features: Any = None) -> Any:
            """Returns "aninfonce0", "aninfonce1" and so on."""
            import numpy as np

            del input_features
            prefix, count = type(self).__name__.lower(), self._n_features_out  # type: ignore[attr-defined]
            return np.asarray([f"{prefix}{i}" for i in range(count)], dtype=object)


__all__ = ["BaseEstimator", "ClassNamePrefixFeaturesOutMixin", "NotFittedError", "TransformerMixin"]
