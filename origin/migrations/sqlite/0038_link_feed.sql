-- What edges read of links: every link in the order of its last change, deleted ones, too.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE link_feed (
    domain TEXT NOT NULL,
    code   TEXT NOT NULL,
    -- Its number. NULL: it has changed since, and gets the next one before anybody reads on.
    seq    INTEGER,
    PRIMARY KEY (domain, code)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX link_feed_by_seq ON link_feed (seq);

-- One row, of id 1: the feed's name, and its last number. Who gives numbers locks it first.
CREATE TABLE link_feed_head (
    id     INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    source TEXT    NOT NULL,
    seq    INTEGER NOT NULL CHECK (seq >= 0)
) STRICT;

INSERT INTO link_feed (domain, code) SELECT domain, code FROM links;
