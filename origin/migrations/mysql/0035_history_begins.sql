-- Where the views of a day begin in each log of events: from there it is read again after Redis has lost its lists.
-- The tables of migrations/sqlite are the same: change both.

CREATE TABLE history_begins (
    source   VARCHAR(192) NOT NULL,
    -- Of UTC, counted from the epoch.
    day      BIGINT NOT NULL,
    position BIGINT NOT NULL,
    PRIMARY KEY (source, day)
) DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
