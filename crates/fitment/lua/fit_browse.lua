-- fit_browse: a page of the SKUs that fit a vehicle.
--
-- KEYS: 1 pages (hash: `s` to their stamp, the number behind which a page begins to the page)
-- ARGV: 1 the number behind which it begins
--
-- Returns {stamp, page}, or null if there is no such page. It is stale if the stamp of the map of vehicles is another one.

local found = redis.call('HMGET', KEYS[1], 's', ARGV[1])
if not found[1] or not found[2] then return false end
return { tonumber(found[1]), found[2] }
