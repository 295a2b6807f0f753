"""A store in PostgreSQL keeps what every store must keep."""

from adats.service.stores.opening import open_store
from adats.testing import check_store
from postgres import new_store


def test_postgres_keeps_all_laws():
    urls = {}
    check_store(lambda name: open_store(urls.get(name) or urls.setdefault(name, new_store(name))))
