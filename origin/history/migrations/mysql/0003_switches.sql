-- What operators have switched while origins run, in one row. NULL: as the origin's flags have it.
CREATE TABLE history_switches (
    id             BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    cold_reads     BIGINT,
    count_cache    BIGINT,
    products_batch BIGINT
);
