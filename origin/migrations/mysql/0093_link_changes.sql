-- Changes of links, to be told to others: written in the transactions that make them.
-- The tables of migrations/sqlite are the same: change both.

CREATE TABLE link_changes (
    link_id  VARCHAR(96) NOT NULL,
    -- 1, 2, 3 … of each link. The last one stays for ever, or numbers would repeat.
    seq      BIGINT NOT NULL CHECK (seq >= 1),
    domain   VARCHAR(16) NOT NULL,
    kind     VARCHAR(32) NOT NULL,
    -- The JSON that is sent, the same at every try; empty once it is pruned.
    body     MEDIUMTEXT NOT NULL,
    at_ms    BIGINT NOT NULL,
    -- As `at_ms`; NULL once it is pruned, so that the index holds what is not.
    kept_ms  BIGINT,
    PRIMARY KEY (link_id, seq)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_changes_by_age ON link_changes (kept_ms);

-- For each receiver, the links of which it does not have every change.
CREATE TABLE link_deliveries (
    link_id    VARCHAR(96) NOT NULL,
    sink       VARCHAR(32) NOT NULL CHECK (sink IN ('webhook', 'events')),
    -- The first change that it does not have, and the last one that there is.
    next_seq   BIGINT NOT NULL,
    last_seq   BIGINT NOT NULL,
    -- Since when it waits.
    since_ms   BIGINT NOT NULL,
    -- When it is tried; of one that is being tried, when another origin may.
    due_at_ms  BIGINT NOT NULL,
    -- Who tries it; 0: nobody.
    holder     BIGINT NOT NULL DEFAULT 0,
    tries      BIGINT NOT NULL DEFAULT 0,
    last_error VARCHAR(255) NOT NULL DEFAULT '',
    PRIMARY KEY (link_id, sink)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE INDEX link_deliveries_by_turn ON link_deliveries (sink, due_at_ms);

CREATE INDEX link_deliveries_by_age ON link_deliveries (sink, since_ms);
