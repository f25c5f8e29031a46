-- audit: the terms of the invariant, for one shard, at one instant.
--
-- KEYS: 1 stock, 2 claims, 3 epoch (see claim.lua)
-- ARGV: none
--
-- Returns {stock, held, bought, epoch}: units left (-1: cold shard), units in open claims, units
-- in settled orders, the epoch. Reads every record: for operators and tests, not for requests.

local held_sum, bought_sum = 0, 0
for _, record in ipairs(redis.call('HVALS', KEYS[2])) do
  local bought, held = string.match(record, '^(%d+) %d+ (%d+) %d+ %d+$')
  held_sum = held_sum + tonumber(held)
  bought_sum = bought_sum + tonumber(bought)
end
return {
  tonumber(redis.call('GET', KEYS[1]) or -1), held_sum, bought_sum,
  tonumber(redis.call('GET', KEYS[3]) or 0),
}
