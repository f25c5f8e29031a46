-- What edges read of links: every link in the order of its last change, deleted ones, too.
-- The tables of migrations/sqlite are the same: change both.

CREATE TABLE link_feed (
    domain VARCHAR(16) NOT NULL,
    code   VARCHAR(32) NOT NULL,
    -- Its number. NULL: it has changed since, and gets the next one before anybody reads on.
    seq    BIGINT,
    PRIMARY KEY (domain, code)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE UNIQUE INDEX link_feed_by_seq ON link_feed (seq);

-- One row, of id 1: the feed's name, and its last number. Who gives numbers locks it first.
CREATE TABLE link_feed_head (
    id     BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    source VARCHAR(32) NOT NULL,
    seq    BIGINT NOT NULL CHECK (seq >= 0)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

INSERT INTO link_feed (domain, code) SELECT domain, code FROM links;
