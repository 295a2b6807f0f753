"""The statements of a store in PostgreSQL. Rows come as JSON, all of a kind at once."""

from adats.service.stores.interface import (
    BeliefRow,
    Bucket,
    ChangeRow,
    Counts,
    ExperimentRow,
    KeyRow,
)
from adats.service.stores.postgres_reader import DECISION
from adats.service.stores.postgres_reader import HOURLY as _HOURLY

A_TASK, AN_EXPERIMENT, QUEUED, BLOCK_AND_TIME = 0, 1, 2, 3  # rows of READ_STATES and TAKE
HOURLY = Bucket._fields + Counts._fields

NOW = "extract(epoch FROM clock_timestamp())::float8"
NEXT_BLOCK = "SELECT nextval('event_ids')"
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext(%s), %s)"
TAKE_LOCK = "SELECT true FROM pg_advisory_xact_lock(hashtext(%s), %s)"

# Tasks of decisions to be made and of rewards: made or locked, all in one order. No key is set, so
# the lock lets foreign keys refer to the task: a fold does not wait for groups.
LOCK = """
INSERT INTO tasks (experiment, task)
SELECT DISTINCT w.e, w.t FROM (
    SELECT x.e, x.t COLLATE "C" AS t FROM json_to_recordset(%(lock)s::json) AS x(e int, t text)
    UNION ALL
    SELECT x.e, t.task FROM json_to_recordset(%(rewards)s::json) AS x(e int, d text)
    JOIN decisions d ON d.experiment = x.e AND d.decision_id = x.d JOIN tasks t ON t.id = d.task_id
) w ORDER BY 1, 2
ON CONFLICT (experiment, task) DO UPDATE SET rounds = tasks.rounds WHERE false
"""

# All of one moment: tasks as folded and as they are, and the experiments' versions.
_STATE = "t.rounds, t.pending, f.generation, t.learned, f.seq"
READ_STATES = f"""
WITH wanted AS (
    SELECT x.e, x.t COLLATE "C" AS t FROM json_to_recordset(%(tasks)s::json) AS x(e int, t text)
    UNION
    SELECT x.e, t.task FROM json_to_recordset(%(asked)s::json) AS x(e int, d text)
    JOIN decisions d ON d.experiment = x.e AND d.decision_id = x.d JOIN tasks t ON t.id = d.task_id
)
SELECT {A_TASK}, t.experiment, t.id, t.task, t.seq, f.stats, {_STATE}, NULL::float8, t.design
FROM wanted w JOIN tasks t ON t.experiment = w.e AND t.task = w.t
LEFT JOIN folded f ON f.task_id = t.id
UNION ALL
SELECT {AN_EXPERIMENT}, x.e, e.version, e.arms, e.prior_version, e.total, e.days_until, NULL, NULL,
    json_build_array(e.tasks, e.decisions, e.counted, e.status)::text, NULL, NULL, NULL
FROM json_to_recordset(%(experiments)s::json) AS x(e int, v bigint)
LEFT JOIN experiments e ON e.id = x.e WHERE e.version IS DISTINCT FROM x.v
UNION ALL
SELECT {BLOCK_AND_TIME}, 0, nextval('event_ids'), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    {NOW}, NULL
"""
READ_DECISIONS = f"""
SELECT x.i, CASE WHEN x.i >= 0 AND d.received > 0 THEN (
    SELECT json_agg(json_build_array(r.id, r.reward, r.reward_id, r.time, r.place,
        r.metrics::json))::text
    FROM rewards r WHERE r.decision = d.id AND (
        r.id = (SELECT max(l.id) FROM rewards l WHERE l.decision = d.id)
        OR (x.n IS NOT NULL AND r.reward_id = x.n)
        OR (x.n IS NULL AND r.reward_id IS NULL AND r.reward = x.r))
    ) END, {DECISION}
FROM json_to_recordset(%(decisions)s::json) AS x(i int, e int, d text, r text, n text)
JOIN decisions d ON d.experiment = x.e AND d.decision_id = x.d JOIN tasks t ON t.id = d.task_id
"""
DUE = f"""
SELECT {DECISION} FROM decisions d JOIN tasks t ON t.id = d.task_id WHERE d.due <= %s
ORDER BY d.due, d.id LIMIT %s FOR NO KEY UPDATE OF t SKIP LOCKED
"""
TAKE = f"""
WITH gone AS (DELETE FROM queue WHERE experiment = %(e)s RETURNING *),
ids AS (
    SELECT i::bigint AS id, max(gone.last) AS last
    FROM gone, json_array_elements_text(gone.task_ids::json) i GROUP BY 1
)
SELECT {A_TASK}, t.id, t.task, t.seq, f.stats, {_STATE}, NULL::float8, ids.last, t.design
FROM ids JOIN tasks t USING (id) LEFT JOIN folded f ON f.task_id = t.id WHERE t.seq > 0
UNION ALL
SELECT {QUEUED}, 0, counts, NULL, NULL, NULL, NULL, NULL,
    json_build_array(tasks, decisions, counted, rewards)::text, NULL, time, NULL, NULL FROM gone
UNION ALL
SELECT {BLOCK_AND_TIME}, nextval('event_ids'), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    {NOW}, NULL, NULL
"""
WAITING = f"""
SELECT experiment FROM queue GROUP BY experiment HAVING min(time) <= {NOW} - %s ORDER BY min(time)
"""
# A client that has stopped between the messages of a pipeline: no timeout of PostgreSQL ends it.
END_STOPPED = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name = 'adats' AND datname = current_database() AND usename = current_user
    AND state = 'active' AND wait_event = 'ClientRead' AND xact_start IS NOT NULL
    AND state_change < clock_timestamp() - interval '5 s'
"""

_FOLDED = "x(id bigint, e int, seq bigint, s text, n bigint, p text, g bigint, z smallint)"
WRITE = f"""
WITH made AS (
    INSERT INTO decisions (id, experiment, task_id, version, decision_id, action, features, request,
        propensity, state_version, prior_version, time, explored, holdout, due, settled, received,
        reward, counted, place, settled_place, after, metrics, kept)
    SELECT id, e, task, v, name, a, decode(f, 'base64'), q, c, sv, pv, at, x, h, due, s, k, r, n, p,
        sp, after, m, kept
    FROM json_to_recordset(%(made)s::json) AS x(id bigint, e int, task bigint, v bigint, name text,
        a text, f text, q text, c text, sv bigint, pv bigint, at float8, x smallint, h smallint,
        due float8, s bigint, k int, r text, n text, p bigint, sp bigint,
        after bigint, m text, kept float8)
    ON CONFLICT (experiment, decision_id) DO NOTHING RETURNING 1
), later AS (
    UPDATE decisions d SET due = x.due, settled = x.s, received = x.k, reward = x.r,
        counted = x.n, settled_place = x.sp, metrics = x.m
    FROM json_to_recordset(%(later)s::json) AS x(id bigint, due float8, s bigint, k int, r text,
        n text, sp bigint, m text) WHERE d.id = x.id
), told AS (
    INSERT INTO rewards (id, experiment, version, decision, reward, reward_id, time, place, metrics)
    SELECT id, e, v, d, r, n, at, p, m FROM json_to_recordset(%(told)s::json) AS x(id bigint, e int,
        v bigint, d bigint, r text, n text, at float8, p bigint, m text)
), used AS (
    UPDATE tasks t SET seq = x.seq, rounds = x.n, pending = decode(x.p, 'base64'), learned = x.l,
        design = coalesce(t.design, decode(x.d, 'base64'))
    FROM json_to_recordset(%(used)s::json) AS x(id bigint, seq bigint, n bigint, p text, l text,
        d text)
    WHERE t.id = x.id
), folded_first AS (
    INSERT INTO folded (task_id, experiment, seq, stats, rounds, pending, generation, size)
    SELECT id, e, seq, decode(s, 'base64'), n, decode(p, 'base64'), g, z
    FROM json_to_recordset(%(folded_first)s::json) AS {_FOLDED}
), folded_again AS (
    UPDATE folded f SET seq = x.seq, stats = decode(s, 'base64'), rounds = n,
        pending = decode(p, 'base64'), generation = g, size = z
    FROM json_to_recordset(%(folded_again)s::json) AS {_FOLDED} WHERE f.task_id = x.id
), folds AS (
    INSERT INTO folds (task_id, seq, version)
    SELECT id, seq, v FROM json_to_recordset(%(folds)s::json) AS x(id bigint, seq bigint, v bigint)
), unused AS (
    DELETE FROM tasks WHERE id = ANY(%(unused)s::bigint[])
), queued AS (
    INSERT INTO queue (experiment, first, last, task_ids, counts, tasks, decisions, counted,
        rewards, time)
    SELECT e, first, last, ids, counts, tasks, decisions, counted, rewards, {NOW}
    FROM json_to_recordset(%(queued)s::json) AS x(e int, first bigint, last bigint, ids text,
        counts text, tasks bigint, decisions bigint, counted bigint, rewards bigint)
)
SELECT (SELECT count(*) FROM made), pg_current_xact_id()::text::bigint
"""
# A number that is not given yet is that of a transaction which was lost.
STATUS = """
SELECT CASE WHEN %(xid)s::text::xid8 < pg_current_xact_id()
    THEN pg_xact_status(%(xid)s::text::xid8) ELSE 'aborted' END
"""
# Any of the events: some of them may be forgotten by now. The ids may be given again, the time not.
IS_THERE = """
SELECT EXISTS (SELECT FROM decisions WHERE id = ANY(%(ids)s) AND time BETWEEN %(from)s AND %(to)s)
    OR EXISTS (SELECT FROM rewards WHERE decision = ANY(%(of)s) AND id = ANY(%(ids)s)
        AND time BETWEEN %(from)s AND %(to)s)
"""
FORGET = """
WITH gone AS (SELECT id FROM tasks WHERE experiment = %s AND task = %s),
rewards AS (
    DELETE FROM rewards r USING decisions d, gone WHERE r.decision = d.id AND d.task_id = gone.id
),
folds AS (DELETE FROM folds f USING gone WHERE f.task_id = gone.id),
folded AS (DELETE FROM folded f USING gone WHERE f.task_id = gone.id)
DELETE FROM tasks t USING gone WHERE t.id = gone.id
"""

# Waits for all groups, and keeps new ones waiting: those have not read yet what is there.
DELETE_EXPERIMENT = (
    "LOCK TABLE tasks IN EXCLUSIVE MODE",
    "DELETE FROM folds f USING tasks t WHERE f.task_id = t.id AND t.experiment = %s",
    *(
        f"DELETE FROM {table} WHERE experiment = %s"
        for table in (
            *("rewards", "decisions", "folded", "queue", "tasks", "changes", "beliefs", "hourly"),
        )
    ),
    "DELETE FROM experiments WHERE id = %s",
)


def _insert(table: str, fields: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(fields)}) VALUES ({', '.join(['%s'] * len(fields))})"


ADD_CHANGE = _insert("changes", ChangeRow._fields)
ADD_BELIEF = _insert("beliefs", BeliefRow._fields)
ADD_KEY = _insert("keys", KeyRow._fields)
_MOVING = ExperimentRow._fields[5:]  # what is before never changes
SAVE_EXPERIMENT = f"""
INSERT INTO experiments ({", ".join(ExperimentRow._fields)})
VALUES ({", ".join(f"%({name})s" for name in ExperimentRow._fields)})
ON CONFLICT (id) DO UPDATE SET {", ".join(f"{name} = EXCLUDED.{name}" for name in _MOVING)}
"""
KEEP_TOTAL = f"""
UPDATE experiments SET {", ".join(f"{name} = %({name})s" for name in _MOVING if name != "total")}
WHERE id = %(id)s
"""

_BUCKET = "experiment int, start bigint, span int, arm text, held_out smallint, metric text"
_SAME = " AND ".join(f"h.{name} = x.{name}" for name in Bucket._fields)
READ_COUNTS = (
    f"SELECT {', '.join(f'h.{name}' for name in HOURLY)} FROM json_to_recordset(%s::json) AS "
    f"x({_BUCKET}) JOIN hourly h ON {_SAME}"
)
WRITE_COUNTS = f"""
WITH gone AS (
    DELETE FROM hourly h USING json_to_recordset(%(gone)s::json) AS x({_BUCKET}) WHERE {_SAME}
)
INSERT INTO hourly ({_HOURLY}) SELECT {_HOURLY}
FROM json_to_recordset(%(new)s::json) AS x({_BUCKET}, decisions bigint, explored bigint,
    rewarded bigint, counted bigint, nonzero bigint, unlikely bigint, sum text, squares text)
ON CONFLICT ({", ".join(Bucket._fields)}) DO UPDATE
SET {", ".join(f"{name} = EXCLUDED.{name}" for name in Counts._fields)}
"""
