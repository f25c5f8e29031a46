-- audit: the terms of the invariant, for one shard, at one instant.
--
-- KEYS: 1 stock, 2 claims, 3 epoch, 4 sequence, 5 transfers, 6 deposits (see claim.lua, lend.lua,
--       deposit.lua)
-- ARGV: none
--
-- Returns {stock, held, bought, deferred, epoch, sequence, transfers, deposits}:
--   stock      {} for a cold shard, else {units}: it may be below 0
--   held       units in open claims
--   bought     units in orders that have left the stock; deferred: units in orders that have not
--   transfers  flat: target shard, "<id> <units> <at_ms>", …;  deposits  flat: lending shard, id, …
-- Reads every record: for operators, the reconciler and tests, not for requests.

local held, bought, deferred = 0, 0, 0
for _, record in ipairs(redis.call('HVALS', KEYS[2])) do
  local r = parse(record)
  held = held + r.held
  bought = bought + ordered(r, ':')
  deferred = deferred + ordered(r, '~')
end
return {
  { tonumber(redis.call('GET', KEYS[1])) }, held, bought, deferred,
  tonumber(redis.call('GET', KEYS[3]) or 0), tonumber(redis.call('GET', KEYS[4]) or 0),
  redis.call('HGETALL', KEYS[5]), redis.call('HGETALL', KEYS[6]),
}
