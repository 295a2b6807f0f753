"""What tests of the service share."""

import pytest

from postgres import new_store


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """The address of an empty store, of each kind."""
    return str(tmp_path / "x.db") if request.param == "sqlite" else new_store("both")
