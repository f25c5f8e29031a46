-- What operators have switched while origins run, in one row. NULL: as the origin's flags have it.
CREATE TABLE history_switches (
    id             INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    cold_reads     INTEGER,
    count_cache    INTEGER,
    products_batch INTEGER
) STRICT;
