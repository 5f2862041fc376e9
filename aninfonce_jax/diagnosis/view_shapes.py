"""The conditional of single examples: how many views of each are spread, output by output.

`diagnose` looks at one pair of each input, and so at all anchors together. Here every example has
so many views that the distribution of its own views can be seen, as in the paper's Figs. 6 and 7.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import stats

from aninfonce_jax.diagnosis.dip import dip_p_value, dip_statistic

FloatArray = npt.NDArray[np.float64]

# The share of the spread over all examples below which views differ by rounding only.
_NONE = 1e-6


@dataclasses.dataclass(frozen=True)
class ViewShapes:
    """How the views of each example are spread, [examples, dim] each.

    Where the views of an example do not differ in an output, they have no shape: skewness and
    kurtosis are 0, and nothing is refuted.

    Attributes:
      widths: their standard deviation, as a share of that of all views of all examples.
      skewness: 0 for what is symmetric.
      kurtosis: in excess of a normal distribution's.
      normal: p-value of being normal, by skewness and kurtosis (D'Agostino and Pearson, 1973).
      one_mode: p-value of having one mode, by the dip test.
    """

    widths: FloatArray
    skewness: FloatArray
    kurtosis: FloatArray
    normal: FloatArray
    one_mode: FloatArray

    @property
    def width_ratios(self) -> FloatArray:
        """How many times as wide the views are for some examples as for others, [dim].

        The 90th percentile over the 10th; 1 if the width does not depend on the example.
        """
        low, high = np.quantile(self.widths, (0.1, 0.9), axis=0)
        return np.where(low > _NONE, high / np.maximum(low, _NONE), 1.0)


def view_shapes(views: FloatArray) -> ViewShapes:
    """Returns how the views of each example are spread.

    Args:
      views: embeddings, [examples, views, dim], with at least 20 views.
    """
    examples, count, dim = views.shape
    total = np.maximum(views.reshape(-1, dim).std(axis=0), 1e-300)
    widths = views.std(axis=1) / total
    differ = widths > _NONE
    # For columns that do not vary, scipy would return NaN, with a warning for each.
    columns = np.moveaxis(views, 1, 0)[:, differ]
    skewness, kurtosis = np.zeros((2, examples, dim))
    normal, one_mode = np.ones((2, examples, dim))
    skewness[differ], kurtosis[differ] = stats.skew(columns), stats.kurtosis(columns)
    normal[differ] = stats.normaltest(columns).pvalue
    one_mode[differ] = [dip_p_value(dip_statistic(column), count) for column in columns.T]
    return ViewShapes(widths, skewness, kurtosis, normal, one_mode)
