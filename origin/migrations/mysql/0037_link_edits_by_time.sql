-- Finds edits that a Redis lost which came back from an old file.
-- The tables of migrations/sqlite are the same: change both.

CREATE INDEX link_history_at ON link_history (at_ms);
