-- fit_browse: reads a page of the SKUs that fit a vehicle.
--
-- KEYS: 1 pages (hash: `s` to the stamp of the pages; the number after which a page begins to the page)
-- ARGV: 1 the number after which the page begins
--
-- Returns {stamp, page}, or null if there is no such page. The page is stale if its stamp differs from the stamp of the
-- vehicle map.

local found = redis.call('HMGET', KEYS[1], 's', ARGV[1])
if not found[1] or not found[2] then return false end
return { tonumber(found[1]), found[2] }
