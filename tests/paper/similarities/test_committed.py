"""The committed results of the bench, and the tables that pages show of them."""

import pytest

from paper.analyses.similarities.committed import main, read_benches, write_benches

pytestmark = pytest.mark.paper


def test_what_is_written_is_read_again(tmp_path, capsys):
    benches = read_benches()
    write_benches(benches, tmp_path / "signals.parquet")
    assert read_benches(tmp_path / "signals.parquet") == benches
    main(["which-way"])
    assert "| text | 1.00 | 0.00 | 1.00 | 1.00 |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["nothing"])
