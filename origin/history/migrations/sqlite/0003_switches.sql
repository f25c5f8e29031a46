-- Switches that operators set while origins run, in one row. NULL: the origin's flags apply.
CREATE TABLE history_switches (
    id             INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    cold_reads     INTEGER,
    count_cache    INTEGER,
    products_batch INTEGER
) STRICT;
