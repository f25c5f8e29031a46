-- Changes of links, to be told to others: written in the transactions that make them.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE link_changes (
    link_id  TEXT NOT NULL,
    -- 1, 2, 3 … of each link. The last one stays for ever, or numbers would repeat.
    seq      INTEGER NOT NULL CHECK (seq >= 1),
    domain   TEXT NOT NULL,
    kind     TEXT NOT NULL,
    -- The JSON that is sent, the same at every try; empty once it is pruned.
    body     TEXT NOT NULL,
    at_ms    INTEGER NOT NULL,
    -- As `at_ms`; NULL once it is pruned, so that the index holds what is not.
    kept_ms  INTEGER,
    PRIMARY KEY (link_id, seq)
) STRICT;

CREATE INDEX link_changes_by_age ON link_changes (kept_ms);

-- For each receiver, the links of which it does not have every change.
CREATE TABLE link_deliveries (
    link_id    TEXT NOT NULL,
    sink       TEXT NOT NULL CHECK (sink IN ('webhook', 'events')),
    -- The first change that it does not have, and the last one that there is.
    next_seq   INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL,
    -- Since when it waits.
    since_ms   INTEGER NOT NULL,
    -- When it is tried; of one that is being tried, when another origin may.
    due_at_ms  INTEGER NOT NULL,
    -- Who tries it; 0: nobody.
    holder     INTEGER NOT NULL DEFAULT 0,
    tries      INTEGER NOT NULL DEFAULT 0,
    last_error TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (link_id, sink)
) STRICT;

CREATE INDEX link_deliveries_by_turn ON link_deliveries (sink, due_at_ms);

CREATE INDEX link_deliveries_by_age ON link_deliveries (sink, since_ms);
