"""The page of a diagnosis, from what was found and from a work directory."""

import html
import re

import jax
import numpy as np
import pytest

import aninfonce_jax as an
from aninfonce_jax import workdir as workdir_lib
from aninfonce_jax.report.diagnosis import write_diagnosis, write_diagnosis_page
from aninfonce_jax.report.diagnosis_words import words_of


@pytest.fixture(scope="module")
def found():
    rng = np.random.default_rng(0)
    anchors = rng.normal(size=(400, 3))
    anchors[:, 2] = np.abs(anchors[:, 2])  # folded
    anchors /= np.linalg.norm(anchors, axis=1, keepdims=True)
    positives = anchors + 0.2 * rng.normal(size=anchors.shape)
    other = anchors[::-1]
    return an.diagnose(
        anchors, positives, concentration=[25.0, 25.0, 25.0], reference={"other <set>": other}
    )


def test_the_page_says_what_was_found_and_needs_no_other_file(found, tmp_path):
    page = write_diagnosis(found, tmp_path / "new" / "page.html", title="a <title>")
    text = page.read_text()
    assert "a &lt;title&gt;" in text
    assert "other <set>" not in text
    for finding in found.findings:
        assert html.escape(words_of(finding.check).question, quote=False) in text
    assert "Violated: " in text
    assert "injective" in text.split("Violated: ")[1].split("</p>")[0]
    assert "Begin with injective: it may be the cause of the others." in text
    assert not re.search(r'(src|href)="(?!#)', text)
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


def test_a_run_s_page_is_made_from_its_file_alone(found, tmp_path):
    workdir_lib.write_diagnosis(tmp_path, "run", found.to_dict())
    first = write_diagnosis_page(tmp_path).read_text()
    assert write_diagnosis_page(tmp_path).read_text() == first
    assert (tmp_path / "figures" / "diagnosis-effects.png").is_file()


def test_an_edited_file_is_noticed(found, tmp_path):
    workdir_lib.write_diagnosis(tmp_path, "run", found.to_dict())
    path = tmp_path / "diagnosis.json"
    path.write_text(path.read_text().replace('"run"', '"ran"'))
    with pytest.raises(workdir_lib.WorkdirError, match=r"was changed.*--mode=diagnose"):
        write_diagnosis_page(tmp_path)


def test_torch_tensors_are_taken():
    torch = pytest.importorskip("torch")
    views = [torch.randn(200, 3, generator=torch.Generator().manual_seed(k)) for k in (0, 1)]
    same = an.diagnose(*(view.numpy() for view in views))
    assert an.diagnose(*views).to_dict() == same.to_dict()


def test_jax_arrays_are_taken():
    views = [jax.random.normal(jax.random.key(k), (200, 3)) for k in (0, 1)]
    assert an.diagnose(*views).pairs == 200
