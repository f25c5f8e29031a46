-- Where the views of a day begin in each log of events: from there it is read again after Redis has lost its lists.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE history_begins (
    source   TEXT    NOT NULL,
    -- Of UTC, counted from the epoch.
    day      INTEGER NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (source, day)
) STRICT, WITHOUT ROWID;
