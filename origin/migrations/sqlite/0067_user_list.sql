-- Users whom operators have blocked in every sale, or let buy whatever a risk check says.
-- The tables of migrations/mysql are the same: change both.

CREATE TABLE user_list (
    user_id  TEXT NOT NULL PRIMARY KEY,
    standing TEXT NOT NULL CHECK (standing IN ('blocked', 'allowed')),
    reason   TEXT NOT NULL,
    -- Who says so, as they name themselves.
    operator TEXT NOT NULL,
    at_ms    INTEGER NOT NULL
) STRICT;

CREATE INDEX user_list_by_standing ON user_list (standing, user_id);

-- Every change of it: only ever appended to.
CREATE TABLE user_list_log (
    id       INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    user_id  TEXT NOT NULL,
    -- 'none': the user was taken off it.
    standing TEXT NOT NULL CHECK (standing IN ('blocked', 'allowed', 'none')),
    reason   TEXT NOT NULL,
    operator TEXT NOT NULL,
    at_ms    INTEGER NOT NULL
) STRICT;

CREATE INDEX user_list_log_by_user ON user_list_log (user_id, id);
