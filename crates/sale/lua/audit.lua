-- audit: the terms of the invariant, for one shard, at one instant.
--
-- KEYS: 1 stock, 2 epoch, 3 sums, 4 sequence, 5 claims, 6 pending, 7 transfers, 8 deposits, 9 change (see shard.lua,
--       record.lua, lend.lua, deposit.lua, stock_change.lua), 10 mark (see raise_mark.lua)
-- ARGV: none
--
-- Returns {terms, epoch, sequence, claims, deadlines, transfers, deposits, change}:
--   terms      {} for a cold shard, else {stock, version, open, held, bought, deferred, checksum, mark}; stock may be
--              negative
--   claims     number of users with an open claim; deadlines: number of deadlines of open claims. Both equal `open`,
--              unless one of the keys was lost.
--   transfers  flat: target shard, "<id> <units> <at_ms>", …
--   deposits   flat: source shard, ID, …
--   change     "<number> <units>", or empty
-- The script reads only sums, so its cost does not depend on the number of buyers.

local shard = load(KEYS[1], KEYS[2], KEYS[3])
local terms = {}
if shard then
  terms = {
    shard.stock, shard.version, shard.open, shard.held, shard.bought, shard.deferred, shard.checksum,
    tonumber(redis.call('GET', KEYS[10]) or 0),
  }
end
return {
  terms, tonumber(redis.call('GET', KEYS[2]) or 0), tonumber(redis.call('GET', KEYS[4]) or 0),
  redis.call('HLEN', KEYS[5]), redis.call('ZCARD', KEYS[6]),
  redis.call('HGETALL', KEYS[7]), redis.call('HGETALL', KEYS[8]),
  redis.call('GET', KEYS[9]) or '',
}
