"""A section of the page: what it shows of those runs that have its data."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from aninfonce_jax.report.groups import Comparison
from aninfonce_jax.report.page_tables import Table
from aninfonce_jax.report.panels import Chart


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of the page; its words are in `section_<name>.html`.

    Attributes:
      name: what it is about.
      comparison: the runs that have its data.
      table: their scores; None if they have none.
      charts: by name, in the order of the page.
      more: what else its template shows.
    """

    name: str
    comparison: Comparison
    table: Table | None
    charts: Mapping[str, Chart]
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def template(self) -> str:
        """The file that says what its tables and figures mean."""
        return f"section_{self.name}.html"
