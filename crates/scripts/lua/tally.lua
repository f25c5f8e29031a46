-- tally: adds to the counts of gateways' decisions in one minute, for operators.
--
-- KEYS: 1 hash: name to count
-- ARGV: lifetime after the last addition in seconds, maximum number of names, then for each name: the name, its count
--
-- Names may come from clients, so new ones are dropped when the maximum is reached. The call is not idempotent: gateways
-- do not repeat a call whose reply is lost.
--
-- Returns how many names were dropped.

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
