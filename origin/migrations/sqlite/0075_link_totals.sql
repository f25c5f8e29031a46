-- How often each link was clicked, to list those that are clicked most.
-- The tables of migrations/mysql are the same: change both.

-- Only links that were clicked have a row: a click may be counted before its link is in `links`.
CREATE TABLE link_totals (
    domain TEXT NOT NULL,
    code   TEXT NOT NULL,
    clicks INTEGER NOT NULL CHECK (clicks >= 0),
    PRIMARY KEY (domain, code)
) STRICT, WITHOUT ROWID;

CREATE INDEX link_totals_by_clicks ON link_totals (clicks, domain, code);

INSERT INTO link_totals (domain, code, clicks)
SELECT domain, code, SUM(clicks) FROM link_clicks WHERE span = 'day' AND clicks > 0 GROUP BY domain, code;
