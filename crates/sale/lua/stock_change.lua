-- stock_change: an operator adds units to a sale, or withdraws some, as far as this shard is concerned.
--
-- KEYS: 1 stock, 2 epoch, 3 sums (see shard.lua), 4 change: "<number> <units>" of the last one that came
-- ARGV: 1 number of the change within its sale: they only grow, 2 units: added; below 0: at most so many are taken, of
--       those that nobody holds
--
-- Returns:
--   {1, units}  of this change the shard has added so many, or below 0 taken: now, or when it was told before
--   {2}         it knows of a later change: nothing changed
--   {3}         cold shard, nothing changed
-- The same call again changes nothing. A rebuild leaves what is remembered: the sum over all shards counts it.

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
