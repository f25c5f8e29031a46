-- fit_browse_fill: a page of the SKUs that fit a vehicle is kept for a while.
--
-- KEYS: 1 pages: see fit_browse.lua
-- ARGV: 1 stamp, 2 the number behind which the page begins, 3 the page, 4 how long the pages live, in milliseconds, 5 the most
--       pages of a vehicle
--
-- Returns 1, or 0 if the pages have a newer stamp or are as many as may be. Pages of an older stamp go.

local stamp = redis.call('HGET', KEYS[1], 's')
if stamp and tonumber(stamp) > tonumber(ARGV[1]) then return 0 end
if stamp and tonumber(stamp) < tonumber(ARGV[1]) then
  redis.call('UNLINK', KEYS[1])
elseif stamp and redis.call('HLEN', KEYS[1]) > tonumber(ARGV[5]) then
  return 0
end
redis.call('HSET', KEYS[1], 's', ARGV[1], ARGV[2], ARGV[3])
-- From the first page on: what changes one relation is not seen for longer.
if redis.call('PTTL', KEYS[1]) < 0 then redis.call('PEXPIRE', KEYS[1], ARGV[4]) end
return 1
