-- fit_browse_fill: caches a page of the SKUs that fit a vehicle.
--
-- KEYS: 1 pages: see fit_browse.lua
-- ARGV: 1 stamp, 2 the number after which the page begins, 3 the page, 4 lifetime of the pages in milliseconds, 5 maximum
--       pages of a vehicle
--
-- Returns 1, or 0 if the pages have a newer stamp or their maximum number. Deletes pages with an older stamp.

local stamp = redis.call('HGET', KEYS[1], 's')
if stamp and tonumber(stamp) > tonumber(ARGV[1]) then return 0 end
if stamp and tonumber(stamp) < tonumber(ARGV[1]) then
  redis.call('UNLINK', KEYS[1])
elseif stamp and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[5]) then
  return 0
end
redis.call('HSET', KEYS[1], 's', ARGV[1], ARGV[2], ARGV[3])
-- The lifetime starts with the first page. It limits how long a change of one relation stays invisible.
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
return 1
