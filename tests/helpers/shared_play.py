"""`Play` with several workers on one PostgreSQL: each operation is done by any of them."""

import random

from adats.service.audit import check_store
from adats.service.engine import Engine
from adats.service.stores.opening import open_store
from schedules import TENANT, Play
from served import Clock, Local

WORKERS = 2


class Workers(Local):
    """Engines on one store; a transaction an operation, and one for the ends of windows."""

    def __init__(self, url, clock, rng):
        self.clock, self.rng = clock, rng
        self.stores = [open_store(url) for _ in range(WORKERS)]
        self.engines = [Engine(store, clock=clock) for store in self.stores]
        self.engine, self.store = self.engines[0], self.stores[0]
        self.only_first = False

    def __getattr__(self, name):
        def work(*arguments):
            engine = self.engines[0] if self.only_first else self.rng.choice(self.engines)
            settle(engine)
            return group(engine, lambda: getattr(engine, name)(TENANT, *arguments))

        return work

    def close(self):
        for store in self.stores:
            store.close()


def settle(engine):
    group(engine, engine.settle_due)


def group(engine, work):
    engine.begin()
    try:
        result = work()
        engine.flush()
    except BaseException:
        engine.undo()
        raise
    engine.commit()
    return result


class SharedPlay(Play):
    """Folds are made now and then; what is checked is checked at rest."""

    def __init__(self, url, experiments, seed):
        self.rng = random.Random(seed)
        self.path, self.compare = url, False
        self.clock = Clock()
        self.local = Workers(url, self.clock, self.rng)
        self.books, self.count = {}, 0
        self.put_all(experiments)

    @classmethod
    def on(cls, url, play):
        """Go on where another has ended, with a copy of its store."""
        own = cls(url, {}, 1)
        own.books, own.count, own.clock.time = play.books, play.count, play.clock.time
        return own

    def version(self, name):
        return self.local.store.experiment(TENANT, name).version

    def _moved(self, name, by=1):
        """A version is a fold, whoever makes it."""
        self.books[name].version = self.version(name)

    def fold(self):
        self.rng.choice(self.local.engines).fold_all()

    def check(self, name):
        self.local.engine.fold_all()
        assert self.local.store.waiting() == []
        self.local.only_first = True
        super().check(name)
        self.local.engine.undo()
        self.local.only_first = False
        assert check_store(self.path) == []

    def reopen(self):
        self.local.close()
        self.local = Workers(self.path, self.clock, self.rng)

    def undone(self, works, *, flushed):
        several = [work for work in works if work[0] in ("decide", "reward")]
        super().undone(several, flushed=flushed)
