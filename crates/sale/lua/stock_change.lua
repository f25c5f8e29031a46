-- stock_change: applies this shard's part when an operator adds units to a sale or withdraws some.
--
-- KEYS: 1 stock, 2 epoch, 3 sums (see shard.lua), 4 change: "<number> <units>" of the last applied change
-- ARGV: 1 number of the change within its sale: numbers only grow; 2 units to add; negative: maximum to withdraw from the
--       stock
--
-- Returns:
--   {1, units}  the units that this change has added, negative: withdrawn, now or in an earlier call
--   {2}         the shard has applied a later change: nothing changed
--   {3}         cold shard, nothing changed
-- A repeated call changes nothing. A rebuild preserves KEYS[4], which the sum over all shards includes.

local shard = load(KEYS[1], KEYS[2], KEYS[3])
if not shard then return { 3 } end
local last, done = string.match(redis.call('GET', KEYS[4]) or '0 0', '^(%d+) (-?%d+)$')
local change, units = tonumber(ARGV[1]), tonumber(ARGV[2])
if change < tonumber(last) then return { 2 } end
if change == tonumber(last) then return { 1, tonumber(done) } end
units = math.max(units, -math.max(shard.stock, 0))
change_stock(shard, units)
shard.version = shard.version + 1
redis.call('SET', KEYS[4], number(change) .. ' ' .. number(units))
save(shard)
return { 1, units }
