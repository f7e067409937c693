"""Files of answers that are damaged, or name jets that are not there."""

import h5py
import numpy as np
import pytest

from pairton.errors import FormatError, InputError, PairtonWarning
from pairton.evaluation.answers import read_assignments
from pairton.evaluation.evaluating import evaluate
from pairton.reconstruction.running import reconstruct_files
from pairton.topology import load_topology
from pairton.topology.extras import labels_of

TTBAR = load_topology("ttbar_allhad")


def spanet(path, columns):
    with h5py.File(path, "w") as file:
        for label, column in zip(labels_of(TTBAR, "spanet"), columns, strict=True):
            file[f"TARGETS/{label}"] = column
    return path


@pytest.mark.parametrize("suffix", [".root", ".parquet", ".h5"])
def test_a_file_cut_in_half_is_one_line(source, mass_model, tmp_path, suffix):
    path = tmp_path / f"answers{suffix}"
    reconstruct_files(source, path, mass_model)
    assert len(read_assignments(path, TTBAR)) == 400
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=f"answers{suffix}") as caught:
        read_assignments(path, TTBAR)
    assert "\n" not in str(caught.value)


def test_a_colon_in_a_name_is_part_of_it(source, mass_model, tmp_path):
    reconstruct_files(source, tmp_path / "a:b.root", mass_model)
    assert len(read_assignments(tmp_path / "a:b.root", TTBAR)) == 400


def test_a_damaged_list_of_parts(source, mass_model, tmp_path):
    reconstruct_files(source, tmp_path / "parts", mass_model, jobs=1)
    (tmp_path / "parts" / "_reconstruction.json").write_text('{"parts": [')
    with pytest.raises(InputError, match="not readable as JSON"):
        read_assignments(tmp_path / "parts", TTBAR)


def test_columns_that_do_not_fit(tmp_path):
    ragged = spanet(tmp_path / "ragged.h5", [np.zeros(4)] * 5 + [np.zeros(3)])
    with pytest.raises(FormatError, match=r"TARGETS/t2/b has the shape \(3,\): every slot needs one number"):
        read_assignments(ragged, TTBAR)
    wide = spanet(tmp_path / "wide.h5", [np.zeros((4, 1))] * 6)
    with pytest.raises(FormatError, match=r"has the shape \(4, 1\)"):
        read_assignments(wide, TTBAR)


def test_jets_that_are_not_there_are_none(decays, source, command, tmp_path, capsys):
    truth = decays(400, seed=2, extra=2).truth.copy()
    right = evaluate(source, assignments=[spanet(tmp_path / "right.h5", truth.T)]).to_dict()
    assert right["efficiency"]["event"]["inclusive"]["correct"] == 400
    truth[[3, 399], 5] = 19
    path = spanet(tmp_path / "wrong.h5", truth.T)
    with pytest.warns(PairtonWarning, match=r"wrong\.h5: 2 of 400 answers name objects that do not exist"):
        found = evaluate(source, assignments=[path]).to_dict()
    assert found["efficiency"]["event"]["inclusive"]["correct"] == 398
    assert command("evaluate", source, "--assignments", path, "--plots", tmp_path / "plots") == 0
    assert "2 of 400 answers name objects that do not exist" in capsys.readouterr().err
