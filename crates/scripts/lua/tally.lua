-- tally: counts of what gateways have decided in one minute, for operators to look at.
--
-- KEYS: a hash, name to count
-- ARGV: how long it is kept after the last addition (s), the most names that it may hold, then each name and its count
--
-- Adds the counts. Names may come from clients, so a new one finds no room when there are too many. Whoever calls twice counts
-- twice: a call whose reply is lost is not made again.
--
-- Returns how many names found no room.

local names, left_out = redis.call('HLEN', KEYS[1]), 0
for a = 3, #ARGV, 2 do
  local is_known = redis.call('HEXISTS', KEYS[1], ARGV[a]) == 1
  if is_known or names < tonumber(ARGV[2]) then
    redis.call('HINCRBY', KEYS[1], ARGV[a], ARGV[a + 1])
    names = names + (is_known and 0 or 1)
  else
    left_out = left_out + 1
  end
end
redis.call('EXPIRE', KEYS[1], ARGV[1])
return left_out
