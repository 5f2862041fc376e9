"""What a report page holds, for tests to look at."""

import html.parser


class Outline(html.parser.HTMLParser):
    """Collects what the assertions need: every tag with its attributes, and tables' cells."""

    def __init__(self, page):
        super().__init__()
        self.tags = []
        self.rows = []
        self._cell = None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._cell = ""

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.rows[-1].append(self._cell)
            self._cell = None

    def handle_data(self, data):
        if self._cell is not None:
            self._cell += data

    def of(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]
