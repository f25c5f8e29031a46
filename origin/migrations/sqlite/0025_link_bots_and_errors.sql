-- Bots apart from people, how far a count may be off, and since when a link's clicks are limited.
-- The tables of migrations/mysql are the same: change both.

-- Clicks of programs that come by themselves: they are not among the others.
ALTER TABLE link_clicks ADD COLUMN bots INTEGER NOT NULL DEFAULT 0;

-- By how much the clicks of a value may be too many: it took the place of another one (the Space-Saving sketch).
ALTER TABLE link_click_parts ADD COLUMN over_max INTEGER NOT NULL DEFAULT 0;

-- How many clicks a link had when its clicks were limited.
ALTER TABLE links ADD COLUMN clicks_before_max INTEGER NOT NULL DEFAULT 0;
