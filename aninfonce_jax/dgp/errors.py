"""What is wrong with a data-generating process."""


class ProcessError(ValueError):
    """Parts that do not fit together, or a setting that can't be sampled."""
